"""test_dane — TLSA records decide whether a mail exchanger must have a certificate, and which"""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from queued.routing.resolver import Resolver
from shared.config.queued.routing import Dns
from tests.fixtures.daemons.routed import Routed, routing
from tests.fixtures.peers.fake_dns import SERVFAIL, FakeDns
from tests.fixtures.peers.tls_peer import TlsPeer, server_context
from tests.fixtures.peers.tlsa import chained, read, tlsa

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from tests.fixtures.peers.certificates import Authority

MX: Final = "mx.example.test"


@asynccontextmanager
async def domain(
    port: int, records: Sequence[str], *, signed: Sequence[str] | None = None, **tls: Any
) -> AsyncIterator[Routed]:
    """example.test with one exchanger at 127.0.0.1, and these TLSA records; every name is signed by default."""
    name = f"_{port}._tcp.{MX}"
    zone = {("example.test", "MX"): [f"10 {MX}."], (MX, "A"): ["127.0.0.1"], (name, "TLSA"): records}
    names = ["example.test", MX, name] if signed is None else [n.replace("TLSA", name) for n in signed]
    async with routing(zone, signed=names, connection={"port": port}, tls={"mode": "dane", **tls}) as routed:
        yield routed


@pytest.mark.parametrize("matching", [0, 1, 2])
@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize("usage", [2, 3])
async def test_a_certificate_named_by_tlsa_is_accepted(
    usage: int, selector: int, matching: int, authority: Authority, tmp_path: Path
) -> None:
    pair, issuer = chained(authority, tmp_path, MX)
    async with TlsPeer(server_context(pair)) as host:
        record = tlsa(usage, selector, matching, issuer if usage == 2 else pair["certificate"])
        async with domain(host.port, [record]) as routed:
            result = await routed.send_one()
            assert (result.result, result.spoken.tls) == ("success", "TLSv1.3 TLS_AES_256_GCM_SHA384 dane")
            assert (host.mails, host.sni) == (["TLSv1.3"], [MX])


async def test_dane_ee_ignores_names_and_dates(authority: Authority) -> None:
    old = authority.ending("other.example", datetime.now(UTC) - timedelta(days=1))
    async with (
        TlsPeer(server_context(old)) as host,
        domain(host.port, [tlsa(3, 1, 1, old["certificate"])]) as routed,
    ):
        assert (await routed.send_one()).result == "success"


@pytest.mark.parametrize("wrong", ["name", "date", "issuer"])
async def test_dane_ta_checks_name_date_and_issuer(wrong: str, authority: Authority, tmp_path: Path) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    more = {"not_after": yesterday} if wrong == "date" else {}
    pair, issuer = chained(authority, tmp_path, "other.example" if wrong == "name" else MX, **more)
    if wrong == "issuer":  # the named authority is in the chain, and issued no certificate of it
        alien = authority.issue(MX, stem="alien")
        chain = read(alien["certificate"]) + read(issuer)
        (tmp_path / "alien.pem").write_bytes(chain)
        pair = alien
    async with (
        TlsPeer(server_context(pair)) as host,
        domain(host.port, [tlsa(2, 1, 1, issuer)]) as routed,
    ):
        result = await routed.send_one()
        assert (result.result, result.outcome.kind, result.outcome.enhanced) == (None, "deferred", "4.7.5")
        assert host.mails == []


async def test_dane_ta_accepts_the_recipient_domain_as_a_name(authority: Authority, tmp_path: Path) -> None:
    pair, issuer = chained(authority, tmp_path, "example.test")
    async with (
        TlsPeer(server_context(pair)) as host,
        domain(host.port, [tlsa(2, 1, 1, issuer)]) as routed,
    ):
        assert (await routed.send_one()).result == "success"


async def test_a_host_with_another_certificate_gets_no_mail(authority: Authority) -> None:
    shown, named = authority.issue(MX), authority.issue(MX)
    async with (
        TlsPeer(server_context(shown)) as host,
        domain(host.port, [tlsa(3, 1, 1, named["certificate"])]) as routed,
    ):
        result = await routed.send_one()
        assert (result.outcome.kind, result.outcome.enhanced, host.mails) == ("deferred", "4.7.5", [])
        assert "no TLSA record names" in result.outcome.text


async def test_one_matching_record_of_several_is_enough(authority: Authority) -> None:
    shown, other = authority.issue(MX), authority.issue(MX)
    async with TlsPeer(server_context(shown)) as host:
        records = [tlsa(3, 1, 1, other["certificate"]), tlsa(3, 1, 1, shown["certificate"]), "3 9 9 00"]
        async with domain(host.port, records) as routed:
            assert (await routed.send_one()).result == "success"


async def test_a_host_with_tlsa_records_but_no_starttls_is_skipped(authority: Authority) -> None:
    pair = authority.issue("mx2.example.test")
    async with (
        TlsPeer(host="127.0.0.2") as stripped,
        TlsPeer(server_context(pair), host="127.0.0.3", port=stripped.port) as good,
    ):
        first, second = (f"_{good.port}._tcp.{name}.example.test" for name in ("mx1", "mx2"))
        zone = {
            ("example.test", "MX"): ["10 mx1.example.test.", "20 mx2.example.test."],
            ("mx1.example.test", "A"): ["127.0.0.2"],
            ("mx2.example.test", "A"): ["127.0.0.3"],
            (first, "TLSA"): [tlsa(3, 1, 1, pair["certificate"])],
            (second, "TLSA"): [tlsa(3, 1, 1, pair["certificate"])],
        }
        names = [name for name, _ in zone]
        async with routing(zone, signed=names, connection={"port": good.port}, tls={"mode": "dane"}) as routed:
            assert (await routed.send_one()).result == "success"
            assert (stripped.connections, stripped.mails, good.mails) == (1, [], ["TLSv1.3"])


async def test_unusable_records_require_tls_without_verification(authority: Authority) -> None:
    pair = authority.issue(MX)
    async with TlsPeer(server_context(pair)) as host, domain(host.port, ["1 1 1 " + "00" * 32]) as routed:
        result = await routed.send_one()
        assert result.spoken.tls == "TLSv1.3 TLS_AES_256_GCM_SHA384 unverified"
    async with TlsPeer() as host, domain(host.port, ["1 1 1 " + "00" * 32]) as routed:
        assert (await routed.send_one()).outcome.kind == "deferred"


@pytest.mark.parametrize("signed", [[], ["example.test", MX], [MX, "TLSA"]])
async def test_without_dnssec_for_every_record_tls_is_opportunistic(signed: list[str], authority: Authority) -> None:
    shown, named = authority.issue(MX), authority.issue(MX)
    async with (
        TlsPeer(server_context(shown)) as host,
        domain(host.port, [tlsa(3, 1, 1, named["certificate"])], signed=signed) as routed,
    ):
        result = await routed.send_one()
        assert (result.result, host.mails) == ("success", ["TLSv1.3"])
        assert result.spoken.tls is not None
        assert result.spoken.tls.endswith(" unverified")


async def test_a_suppressed_tlsa_answer_defers_mail(authority: Authority) -> None:
    async with TlsPeer(server_context(authority.issue(MX))) as host, domain(host.port, [SERVFAIL]) as routed:
        result = await routed.send_one()
        assert (result.outcome.kind, host.connections) == ("deferred", 0)
        assert f"TLSA of {MX}" in result.outcome.text


async def test_tlsa_is_not_queried_in_an_unsigned_zone(authority: Authority) -> None:
    async with (
        TlsPeer(server_context(authority.issue(MX))) as host,
        domain(host.port, [SERVFAIL], signed=["example.test"]) as routed,
    ):
        assert (await routed.send_one()).result == "success"
        assert "TLSA" not in {kind for _, kind in routed.dns.asked}


async def test_tlsa_records_of_a_smart_host_apply(authority: Authority) -> None:
    # A name that /etc/hosts knows, since smart hosts are connected to by name.
    pair = authority.issue("localhost")
    async with TlsPeer(server_context(pair)) as host:
        name = f"_{host.port}._tcp.localhost"
        smart = {"mode": "smarthost", "server": "localhost", "port": host.port}
        zone = {(name, "TLSA"): [tlsa(3, 1, 1, pair["certificate"])]}
        async with routing(zone, signed=[name], connection=smart, tls={"mode": "dane"}) as routed:
            result = await routed.send_one()
            assert result.spoken.tls is not None
            assert result.spoken.tls.endswith(" dane")


async def test_a_name_server_is_trusted_only_if_configured() -> None:
    zone = {("example.test", "MX"): ["10 mx.example.test."]}
    async with FakeDns(zone, signed=["example.test"]) as dns:
        dns.boastful = True
        for trusted in (True, False):
            resolver = Resolver(Dns.model_validate({"servers": [dns.where], "trusted": trusted}))
            assert (await resolver.mx("example.test")).secure is trusted
            await resolver.close()
