"""test_dane_aliases — CNAMEs of a mail exchanger: the TLSA records that apply, and the valid names"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest

from queued.routing.route import Hop
from tests.fixtures.daemons.routed import Routed, routing
from tests.fixtures.peers.fake_dns import SERVFAIL
from tests.fixtures.peers.tls_peer import TlsPeer, server_context
from tests.fixtures.peers.tlsa import chained, tlsa

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from tests.fixtures.peers.certificates import Authority

MX: Final = "mx.example.test"


@asynccontextmanager
async def aliased(port: int, below: Mapping[str, Sequence[str]], *unsigned: str) -> AsyncIterator[Routed]:
    """example.test, an alias of real.test; its exchanger is an alias of box.test; TLSA records below names."""
    zone = {
        ("example.test", "CNAME"): ["real.test."],
        ("real.test", "MX"): [f"10 {MX}."],
        (MX, "CNAME"): ["box.test."],
        ("box.test", "A"): ["127.0.0.1"],
    } | {(f"_{port}._tcp.{name}", "TLSA"): records for name, records in below.items()}
    names = {name for name, _ in zone} | {f"_{port}._tcp.{name}" for name in (MX, "box.test")}
    async with routing(
        zone, signed=[*names.difference(unsigned)], connection={"port": port}, tls={"mode": "dane"}
    ) as routed:
        yield routed


@pytest.mark.parametrize(
    ("below", "unsigned", "base"),
    [
        (("box.test", MX), (), "box.test"),
        ((MX,), (), MX),
        # The address is not signed, but that box.test is looked for instead is: only the alias has records that count.
        (("box.test", MX), ("box.test",), MX),
    ],
)
async def test_tlsa_records_of_the_alias_target_are_tried_first(
    below: Sequence[str], unsigned: Sequence[str], base: str, authority: Authority
) -> None:
    pair, other = authority.issue(MX), authority.issue(MX)
    async with TlsPeer(server_context(pair)) as host:
        records = {name: [tlsa(3, 1, 1, (pair if name == base else other)["certificate"])] for name in below}
        async with aliased(host.port, records, *unsigned) as routed:
            result = await routed.send_one()
            assert (result.result, result.spoken.tls) == ("success", "TLSv1.3 TLS_AES_256_GCM_SHA384 dane")
            assert host.sni == [base]


async def test_an_unvalidated_alias_has_no_tlsa_records(authority: Authority) -> None:
    shown, named = authority.issue(MX), authority.issue(MX)
    async with TlsPeer(server_context(shown)) as host:
        records = {name: [tlsa(3, 1, 1, named["certificate"])] for name in (MX, "box.test")}
        async with aliased(host.port, records, "box.test", MX) as routed:
            assert (await routed.send_one()).result == "success"
            assert (host.mails, host.sni) == (["TLSv1.3"], [MX])


async def test_suppressed_records_of_an_alias_defer_mail(authority: Authority) -> None:
    pair = authority.issue(MX)
    async with TlsPeer(server_context(pair)) as host:
        records = {"box.test": [SERVFAIL], MX: [tlsa(3, 1, 1, pair["certificate"])]}
        async with aliased(host.port, records) as routed:
            result = await routed.send_one()
            assert (result.outcome.kind, host.connections) == ("deferred", 0)
            assert "TLSA of box.test" in result.outcome.text


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [("real.test", "MX", "its MX"), ("box.test", "A", "its address"), (MX, "CNAME", "its CNAME")],
)
async def test_suppressing_mx_or_cname_answers_does_not_bypass_dane(name: str, kind: str, reason: str) -> None:
    async with aliased(25, {MX: ["3 1 1 " + "00" * 32]}, "box.test") as routed:
        if kind == "CNAME":
            await routed.resolver.addresses(MX)  # is kept, so that only the question for the alias itself is lost
        routed.dns.records[name, kind] = [SERVFAIL]
        [wanted] = (await routed.transport.tls.plan("example.test", [Hop("127.0.0.1", 25, MX)])).values()
        assert wanted.refused.startswith("DNS: TLSA of ")
        assert reason in wanted.refused


@pytest.mark.parametrize("name", ["box.test", MX, "example.test", "real.test", "other.test"])
async def test_dane_ta_accepts_the_names_of_signed_aliases(name: str, authority: Authority, tmp_path: Path) -> None:
    pair, issuer = chained(authority, tmp_path, name)
    async with (
        TlsPeer(server_context(pair)) as host,
        aliased(host.port, {"box.test": [tlsa(2, 1, 1, issuer)]}) as routed,
    ):
        assert (await routed.send_one()).result == (None if name == "other.test" else "success")
