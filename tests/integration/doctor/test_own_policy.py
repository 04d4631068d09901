"""test_own_policy — doctor reads the MTA-STS policies of our own domains from a real name server and HTTPS server"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from operate.doctor.checks import Severity
from operate.doctor.own_policy import own_policies
from queued.routing.resolver import Resolver
from queued.tls.context import Contexts
from queued.tls.mta_sts_fetch import Fetcher
from shared.config.queued.routing import Dns
from shared.config.queued.transport_tls import TransportTls
from tests.fixtures.peers.fake_dns import SERVFAIL, FakeDns
from tests.fixtures.peers.web.policy_host import PolicyHost, answer, policy

if TYPE_CHECKING:
    from operate.doctor.checks import Finding
    from tests.fixtures.peers.certificates import Authority

DOMAIN: Final = "example.com"
HOST: Final = f"mta-sts.{DOMAIN}"
MX: Final = f"mx.{DOMAIN}"
RECORD: Final = (f"_mta-sts.{DOMAIN}", "TXT")
GOOD: Final = {RECORD: ['"v=STSv1; id=1;"'], (DOMAIN, "MX"): [f"10 {MX}."]}
OK, NOTE, WARN = Severity.OK, Severity.NOTE, Severity.WARN


async def examined(
    authority: Authority,
    octets: bytes = answer(policy(MX)),
    records: dict[tuple[str, str], list[str]] = GOOD,
    name: str = HOST,
) -> Finding:
    """The finding, where the HTTPS server has a certificate for this name and answers with these octets."""
    async with FakeDns(records) as dns, PolicyHost(authority.issue(name), octets) as host:
        resolver = Resolver(Dns.model_validate({"servers": [dns.where]}))
        contexts = Contexts(TransportTls.model_validate({"ca": str(authority.file)}))
        try:
            return await own_policies([DOMAIN], resolver, Fetcher(contexts.https, host.find, 5.0))
        finally:
            await resolver.close()


@pytest.mark.parametrize(
    ("octets", "verdict", "says"),
    [
        (answer(policy(MX)), OK, "example.com found"),
        (answer(policy("*.example.com")), OK, "example.com found"),
        (answer(policy(MX, mode="testing")), NOTE, "example.com is testing"),
        (answer(policy(mode="none")), NOTE, "example.com is none"),
        (
            answer(policy("mx.example.net")),
            WARN,
            "example.com: the policy does not name the mail exchanger mx.example.com",
        ),
        (answer(policy(MX, max_age=3600)), WARN, "example.com: max_age is 3600 s, less than a day"),
        (answer(b"mode: enforce\r\n"), WARN, "the file is not a valid MTA-STS policy"),
        (answer(b"", "404 Not Found"), WARN, "https://mta-sts.example.com: answered 404"),
    ],
)
async def test_a_policy_has_its_verdict(authority: Authority, octets: bytes, verdict: Severity, says: str) -> None:
    finding = await examined(authority, octets)
    assert (finding.check, finding.verdict) == ("domain.mta_sts", verdict), finding
    assert says in finding.found
    assert bool(finding.remedy) == (verdict is not OK)


async def test_a_certificate_of_another_name_is_a_fault(authority: Authority) -> None:
    finding = await examined(authority, name="www.example.com")
    assert (finding.verdict, "certificate" in finding.found) == (WARN, True), finding


@pytest.mark.parametrize(
    ("texts", "verdict", "says"),
    [
        ([], OK, "no domain publishes a policy"),
        (['"v=STSv1; id=1;"', '"v=STSv1; id=2;"'], WARN, "_mta-sts.example.com has not exactly one record with an id"),
        (['"v=STSv1;"'], WARN, "_mta-sts.example.com has not exactly one record with an id"),
        ([SERVFAIL], NOTE, "DNS does not answer about example.com"),
    ],
)
async def test_a_record_has_its_verdict(authority: Authority, texts: list[str], verdict: Severity, says: str) -> None:
    finding = await examined(authority, records=GOOD | {RECORD: texts})
    assert (finding.verdict, says in finding.found) == (verdict, True), finding


async def test_a_domain_without_mx_records_is_its_own_exchanger(authority: Authority) -> None:
    records = {RECORD: GOOD[RECORD]}
    assert (await examined(authority, answer(policy(DOMAIN)), records)).verdict is OK
    assert (await examined(authority, answer(policy(MX)), records)).verdict is WARN
