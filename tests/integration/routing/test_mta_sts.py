"""test_mta_sts — policies are fetched by HTTPS, cached as long as they say, and enforced"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from queued.routing.resolver import Resolver
from queued.tls.context import Contexts
from queued.tls.mta_sts import LONGEST, StsPolicy
from queued.tls.mta_sts_cache import MtaSts
from queued.tls.mta_sts_fetch import Fetcher, NoPolicyError, by_resolver
from shared.config.queued.routing import Dns
from shared.config.queued.transport_tls import TransportTls
from tests.fixtures.daemons.routed import Routed, routing
from tests.fixtures.heard import until
from tests.fixtures.peers.fake_dns import SERVFAIL, FakeDns
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.peers.tls_peer import TlsPeer, server_context
from tests.fixtures.peers.web.policy_host import PolicyHost, answer, leading_to, policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.fixtures.heard import Heard
    from tests.fixtures.peers.certificates import Authority

DOMAIN: Final = "example.test"
HOST: Final = f"mta-sts.{DOMAIN}"
MX: Final = f"mx.{DOMAIN}"
RECORD: Final = (f"_mta-sts.{DOMAIN}", "TXT")


def fetcher(host: PolicyHost, authority: Authority, limit: float = 5.0) -> Fetcher:
    contexts = Contexts(TransportTls.model_validate({"ca": str(authority.file)}))
    return Fetcher(contexts.https, host.find, limit)


async def test_a_policy_is_fetched_from_its_own_host(authority: Authority) -> None:
    async with PolicyHost(authority.issue(HOST), answer(policy(MX))) as host:
        assert await fetcher(host, authority).fetch(DOMAIN) == StsPolicy("enforce", 86400, (MX,))
        assert host.asked == [(HOST, b""), (HOST, b"GET /.well-known/mta-sts.txt HTTP/1.1")]


async def test_a_failed_address_is_followed_by_the_next_one(authority: Authority) -> None:
    class Second(PolicyHost):
        async def find(self, host: str) -> Sequence[str]:
            return [f"127.0.0.1:{free_port()}", *await super().find(host)]

    async with Second(authority.issue(HOST), answer(policy(MX))) as host:
        assert await fetcher(host, authority).fetch(DOMAIN) == StsPolicy("enforce", 86400, (MX,))


async def test_two_domains_at_one_address_each_prove_their_name(authority: Authority) -> None:
    async with PolicyHost(authority.issue(HOST), answer(policy(MX))) as host:
        asked = fetcher(host, authority)
        await asked.fetch(DOMAIN)
        with pytest.raises(NoPolicyError, match="Hostname mismatch"):
            await asked.fetch("other.test")
        assert len(host.requests) == 1


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (answer(b"", "301 Moved", "Location: https://other.example/"), "answered 301"),
        (answer(policy(MX), "404 Not Found"), "answered 404"),
        (answer(policy(MX), kind="text/html"), "another content type"),
        (answer(b"<html>"), "is not a valid MTA-STS policy"),
        (answer(policy(MX) + b"\n" * LONGEST), f"more than {LONGEST} octets"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 900\r\n\r\n" + policy(MX), "https://"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000, "more than"),
        (b"this is not HTTP\r\n\r\n", "https://"),
        (None, "within 0.3 s"),
    ],
)
async def test_an_invalid_answer_is_refused_with_the_reason(
    octets: bytes | None, reason: str, authority: Authority
) -> None:
    async with PolicyHost(authority.issue(HOST), octets) as host:
        with pytest.raises(NoPolicyError, match=reason):
            await fetcher(host, authority, limit=0.3 if octets is None else 5.0).fetch(DOMAIN)


async def test_the_policy_host_needs_a_valid_certificate_for_its_name(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with PolicyHost(authority.issue(DOMAIN), answer(policy(MX))) as host:
        with pytest.raises(NoPolicyError, match=r"certificate is not valid for .mta-sts\.example\.test"):
            await fetcher(host, authority).fetch(DOMAIN)
        assert host.requests == []
    elsewhere = type(authority)(tmp_path_factory.mktemp("elsewhere"))
    async with PolicyHost(elsewhere.issue(HOST), answer(policy(MX))) as host:
        with pytest.raises(NoPolicyError, match="certificate verify failed"):
            await fetcher(host, authority).fetch(DOMAIN)


async def test_a_domain_cannot_direct_a_fetch_to_a_private_address() -> None:
    async with FakeDns({(HOST, "A"): ["127.0.0.1", "10.0.0.1"]}) as dns:
        resolver = Resolver(Dns.model_validate({"servers": [dns.where]}))
        with pytest.raises(NoPolicyError, match="no address that may be connected to"):
            await Fetcher(Contexts().https, by_resolver(resolver, private=False), 5.0).fetch(DOMAIN)
        await resolver.close()


class Asking(NamedTuple):
    """A user of the cache, with its resolver and fetcher."""

    sts: MtaSts
    resolver: Resolver
    fetcher: Fetcher

    async def policy(self, domain: str) -> StsPolicy | None:
        return await self.sts.policy(domain, self.resolver, self.fetcher)


@asynccontextmanager
async def kept(authority: Authority, host: PolicyHost, clock: Any = None) -> AsyncIterator[tuple[Asking, FakeDns]]:
    """A cache, and the DNS it asks, where example.test announces a policy."""
    async with FakeDns({RECORD: ['"v=STSv1; id=1;"']}, ttl=0) as dns:
        resolver = Resolver(Dns.model_validate({"servers": [dns.where], "entries": 1}))
        try:
            yield Asking(MtaSts(**({"clock": clock} if clock else {})), resolver, fetcher(host, authority)), dns
        finally:
            await resolver.close()


async def forget(sts: Asking) -> None:
    """Another question pushes the record out of the resolver's memory, which holds one answer here."""
    await sts.policy("other.test")


async def test_concurrent_lookups_fetch_the_policy_once(authority: Authority) -> None:
    async with PolicyHost(authority.issue(HOST), answer(policy(MX))) as host, kept(authority, host) as (sts, _):
        found = await asyncio.gather(*(sts.policy(DOMAIN.upper()) for _ in range(20)))
        assert {each.mode for each in found if each} == {"enforce"}
        assert len(host.requests) == 1
        await forget(sts)
        assert await sts.policy(DOMAIN) == found[0]
        assert len(host.requests) == 1


async def test_a_policy_stays_until_its_max_age_despite_attacks(authority: Authority) -> None:
    now = 0.0
    async with (
        PolicyHost(authority.issue(HOST), answer(policy(MX, max_age=3600))) as host,
        kept(authority, host, lambda: now) as (sts, dns),
    ):
        first = await sts.policy(DOMAIN)
        for suppressed in ([], [SERVFAIL], ['"v=STSv1; id=2;"']):
            host.answer = answer(b"", "404 Not Found")
            dns.records[RECORD] = suppressed
            await forget(sts)
            assert await sts.policy(DOMAIN) == first
        now = 3601.0
        dns.records[RECORD] = []
        await forget(sts)
        assert await sts.policy(DOMAIN) is None


async def test_a_new_id_makes_the_policy_be_fetched_again(authority: Authority) -> None:
    async with PolicyHost(authority.issue(HOST), answer(policy(MX))) as host, kept(authority, host) as (sts, dns):
        assert await sts.policy(DOMAIN) == StsPolicy("enforce", 86400, (MX,))
        host.answer = answer(policy("mx2.example.test", mode="testing"))
        dns.records[RECORD] = ['"v=STSv1; id=2;"']
        await forget(sts)
        assert await sts.policy(DOMAIN) == StsPolicy("testing", 86400, ("mx2.example.test",))


async def test_a_failed_fetch_is_not_repeated_at_once(
    authority: Authority,
) -> None:
    now = 0.0
    async with (
        PolicyHost(authority.issue(HOST), answer(b"", "404 Not Found")) as host,
        kept(authority, host, lambda: now) as (sts, _),
    ):
        for _ in range(3):
            assert await sts.policy(DOMAIN) is None
        assert len(host.requests) == 1
        now, host.answer = 301.0, answer(policy(MX))
        assert await sts.policy(DOMAIN) is not None


async def test_a_policy_evicted_while_fetched_is_returned_to_all_waiters(authority: Authority) -> None:
    go = asyncio.Event()

    class Slow(PolicyHost):
        async def find(self, host: str) -> Sequence[str]:
            await go.wait()
            return await super().find(host)

    async with Slow(authority.issue(HOST), answer(policy(MX))) as host, kept(authority, host) as (sts, dns):
        dns.records["_mta-sts.other.test", "TXT"] = dns.records[RECORD]
        cache = MtaSts(entries=1)
        asked = sts._replace(sts=cache)
        asking = []

        def at(name: str, fetching: int) -> bool:
            """Whether this domain alone is kept, and so many are being fetched."""
            return [domain for _, domain in cache._kept] == [name] and len(cache._fetching) == fetching

        for name, fetching in ((DOMAIN, 1), ("other.test", 2), (DOMAIN, 2)):
            asking.append(asyncio.create_task(asked.policy(name)))
            await until(partial(at, name, fetching), "the policy to be asked for")
        go.set()
        first, _, second = await asyncio.gather(*asking)
        assert first is not None
        assert second == first


@asynccontextmanager
async def domain(
    authority: Authority, peer: TlsPeer, body: bytes, **tls: Any
) -> AsyncIterator[tuple[Routed, PolicyHost]]:
    """example.test with its exchanger and the policy it publishes."""
    zone = {RECORD: ['"v=STSv1; id=1;"'], (DOMAIN, "MX"): [f"10 {MX}."], (MX, "A"): ["127.0.0.1"]}
    tls["ca"] = str(authority.file)
    async with PolicyHost(authority.issue(HOST), answer(body)) as host:
        with leading_to(host):
            async with routing(zone, connection={"port": peer.port}, tls=tls) as routed:
                yield routed, host


async def test_an_enforced_policy_is_obeyed(authority: Authority) -> None:
    async with TlsPeer(server_context(authority.issue(MX))) as peer, domain(authority, peer, policy(MX)) as (routed, _):
        result = await routed.send_one()
        assert (result.result, result.spoken.tls) == ("success", "TLSv1.3 TLS_AES_256_GCM_SHA384 verified")


@pytest.mark.parametrize("kind", ["clear", "misnamed"])
async def test_an_exchanger_that_violates_the_policy_gets_no_mail(kind: str, authority: Authority) -> None:
    context = None if kind == "clear" else server_context(authority.issue("other.example"))
    async with TlsPeer(context) as peer, domain(authority, peer, policy(MX)) as (routed, _):
        result = await routed.send_one()
        assert (result.outcome.kind, result.outcome.enhanced, peer.mails) == ("deferred", "4.7.5", [])
        assert "MTA-STS" in result.outcome.text


async def test_an_exchanger_not_in_the_policy_gets_no_connection(authority: Authority) -> None:
    async with (
        TlsPeer(server_context(authority.issue(MX))) as peer,
        domain(authority, peer, policy("mx.elsewhere.test")) as (routed, _),
    ):
        result = await routed.send_one()
        assert (result.outcome.kind, peer.connections) == ("deferred", 0)
        assert result.outcome.text == "MTA-STS: the policy of example.test does not name mx.example.test"


async def test_a_policy_in_testing_mode_stops_no_mail(authority: Authority) -> None:
    body = policy("mx.elsewhere.test", mode="testing")
    async with TlsPeer() as peer, domain(authority, peer, body) as (routed, host):
        assert (await routed.send_one()).result == "success"
        assert len(host.requests) == 1


async def test_with_mtasts_off_no_policy_is_fetched(authority: Authority) -> None:
    async with TlsPeer() as peer, domain(authority, peer, policy(MX), mtasts=False) as (routed, host):
        result = await routed.send_one()
        assert (result.result, result.spoken.tls, host.asked) == ("success", "none", [])
        assert RECORD not in routed.dns.asked


async def test_an_unavailable_policy_is_logged_and_stops_no_mail(authority: Authority, heard: Heard) -> None:
    async with TlsPeer() as peer, domain(authority, peer, b"<html>") as (routed, _):
        assert (await routed.send_one()).result == "success"
        [event] = heard.all("mta_sts.failed")
        assert (event["domain"], str(event["error"])) == (
            DOMAIN,
            f"https://{HOST}: the file is not a valid MTA-STS policy",
        )
