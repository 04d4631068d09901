"""test_published — doctor compares DNS with what receivers of our mail look up: SPF, DKIM, DMARC, reverse records

Owns: proofs about operate/doctor/published.py, with a real name server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from operate.doctor import published
from operate.doctor.checks import Severity
from queued.routing.resolver import Resolver
from queued.signing.keys import new_key
from shared.config.queued.settings import QueuedConfig
from tests.fixtures.peers.fake_dns import SERVFAIL, FakeDns

if TYPE_CHECKING:
    from pathlib import Path

    from operate.doctor.checks import Finding

KEY = ("s._domainkey.example.com", "TXT")
GOOD = {
    ("example.com", "TXT"): ['"v=spf1 a:mail.example.com ~all"', '"verify=4711"'],
    ("_dmarc.example.com", "TXT"): ['"v=DMARC1; p=none"'],
    ("mail.example.com", "A"): ["192.0.2.1"],
    ("1.2.0.192.in-addr.arpa", "PTR"): ["Mail.example.com."],
}


async def examined(
    records: dict[tuple[str, str], list[str]], folder: Path, domain: str = "example.com"
) -> dict[str, Finding]:
    """The findings by check, of a host that signs for this domain and delivers by MX."""
    key = folder / "key.pem"
    key.write_bytes(new_key(ed25519=True).pem())
    async with FakeDns(records) as dns:
        values: dict[str, Any] = {
            "environment": {"database": {"uri": "postgresql:///none"}},
            "workers": [{"id": "w", "where": "true"}],
            "transports": [{"id": "default", "hostname": "mail.example.com", "connection": {"mode": "mx"}}],
            "routing": {"dns": {"servers": [dns.where]}},
            "signing": {
                "rules": [{"id": "r", "senderdomain": [domain], "keys": [{"selector": "s", "file": str(key)}]}]
            },
        }
        queued = QueuedConfig.model_validate(values)
        resolver = Resolver(queued.routing.dns)
        try:
            return {each.check: each for each in await published.records(queued, resolver)}
        finally:
            await resolver.close()


async def test_a_host_whose_records_are_right_is_fine(tmp_path: Path) -> None:
    found = await examined(GOOD, tmp_path)
    for check in ("domain.spf", "domain.dmarc", "host.reverse"):
        assert found[check].verdict is Severity.OK, found[check]


@pytest.mark.parametrize(
    ("check", "place", "has", "says"),
    [
        ("domain.spf", ("example.com", "TXT"), [], "example.com has 0 SPF records"),
        ("domain.spf", ("example.com", "TXT"), ['"v=spf1 -all"', '"v=spf1 a ~all"'], "example.com has 2 SPF records"),
        ("domain.dmarc", ("_dmarc.example.com", "TXT"), ['"v=spf1 -all"'], "example.com has 0 DMARC records"),
        ("host.reverse", ("1.2.0.192.in-addr.arpa", "PTR"), ["pool-1.example.net."], "192.0.2.1 is pool-1.example.net"),
        ("host.reverse", ("1.2.0.192.in-addr.arpa", "PTR"), [], "192.0.2.1 is without one"),
    ],
)
async def test_a_record_that_is_missing_or_wrong_is_named(
    check: str, place: tuple[str, str], has: list[str], says: str, tmp_path: Path
) -> None:
    records = {key: value for key, value in GOOD.items() if key != place} | ({place: has} if has else {})
    finding = (await examined(records, tmp_path))[check]
    assert (finding.verdict, says in finding.found) == (Severity.WARN, True), finding
    assert finding.remedy


async def test_a_domain_above_may_have_the_policy(tmp_path: Path) -> None:
    found = await examined(GOOD, tmp_path, "news.example.com")
    assert found["domain.dmarc"].verdict is Severity.OK
    assert found["domain.spf"].verdict is Severity.WARN, "SPF is of the domain alone"


async def test_a_name_server_that_fails_is_no_missing_record(tmp_path: Path) -> None:
    broken = {key: [SERVFAIL] for key in (*GOOD, KEY)}
    found = await examined(broken, tmp_path)
    checks = ("domain.spf", "domain.dkim", "domain.dmarc", "host.reverse")
    assert {found[check].verdict for check in checks} == {Severity.NOTE}


async def test_the_key_in_dns_is_compared_with_ours(tmp_path: Path) -> None:
    missing = (await examined(GOOD, tmp_path))["domain.dkim"]
    assert (missing.verdict, missing.found) == (Severity.WARN, "s._domainkey.example.com: DNS has no such record")
    another = GOOD | {KEY: ['"v=DKIM1; k=ed25519; p=b3RoZXI="']}
    assert "DNS has another key" in (await examined(another, tmp_path))["domain.dkim"].found
