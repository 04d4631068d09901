"""test_sources — mail leaves from the addresses in queued.yaml, over real sockets bound to loopback addresses

See: tests/unit/routing/test_source.py for the decisions; test_warmup.py for allowances that several workers share.
"""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from queued.deliver import Deferral
from queued.pacing.pace import Paces
from shared.config.queued.pacing import Pacing
from tests.fixtures.daemons.routed import US, routing, sinks
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.peers.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Sequence

ZONE: dict[tuple[str, str], Sequence[str]] = {
    ("example.test", "MX"): ["10 mx1.test."],
    ("mx1.test", "A"): ["127.0.0.2"],
    ("both.test", "MX"): ["10 dead.test.", "20 mx6.test."],
    ("dead.test", "A"): ["127.0.0.9"],
    ("mx6.test", "AAAA"): ["::1"],
}
TWO: list[dict[str, Any]] = [
    {"address": "127.0.0.11", "hostname": "out1.test", "weight": 3},
    {"address": "127.0.0.12", "hostname": "out2.test"},
]


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


six = pytest.mark.skipif(not has_ipv6(), reason="this host has no ::1")


def warm(address: str, *days: int, since: int = 0) -> dict[str, Any]:
    """A source with a warm-up that began so many days ago."""
    begins = datetime.now(UTC).date() - timedelta(days=since)
    return {"address": address, "warmup": {"from": begins.isoformat(), "days": list(days)}}


def pacing(**policy: Any) -> Paces:
    return Paces(Pacing.model_validate({"policies": [{"id": "p", **policy}]}))


async def test_each_attempt_uses_a_source_address_and_its_ehlo_name() -> None:
    async with Witness("127.0.0.2") as witness, routing(ZONE, connection={"port": witness.port}, sources=TWO) as routed:
        results = [await routed.send_one() for _ in range(40)]
        assert {result.result for result in results} == {"success"}
        assert set(witness.seen) == {("127.0.0.11", "out1.test"), ("127.0.0.12", "out2.test")}
        assert [result.spoken.source for result in results] == [peer for peer, _ in witness.seen]


async def test_without_sources_the_system_chooses_the_address() -> None:
    async with Witness("127.0.0.2") as witness, routing(ZONE, connection={"port": witness.port}) as routed:
        assert (await routed.send_one()).spoken.source is None
        assert [hostname for _, hostname in witness.seen] == [US]


async def test_a_source_without_hostname_uses_that_of_the_transport() -> None:
    sections: dict[str, Any] = {"sources": [{"address": "127.0.0.13"}], "hostname": "mail.test"}
    async with Witness("127.0.0.2") as witness, routing(ZONE, connection={"port": witness.port}, **sections) as routed:
        await routed.send_one()
        assert witness.seen == [("127.0.0.13", "mail.test")]


@six
async def test_each_family_has_its_source_within_one_attempt() -> None:
    sources = [{"address": "127.0.0.11", "hostname": "four.test"}, {"address": "::1", "hostname": "six.test"}]
    async with Witness("::1") as witness, routing(ZONE, connection={"port": witness.port}, sources=sources) as routed:
        result = await routed.send_one("bob@both.test")
        assert (result.result, result.spoken.source) == ("success", "::1")
        assert witness.seen == [("::1", "six.test")]


@six
async def test_hosts_of_a_family_without_source_are_skipped() -> None:
    async with Witness("::1") as witness, routing(ZONE, connection={"port": witness.port}, sources=TWO[:1]) as routed:
        result = await routed.send_one("bob@both.test")
        assert (result.outcome.kind, result.remote) == ("deferred", f"dead.test[127.0.0.9]:{witness.port}")
        assert witness.seen == []


async def test_an_address_this_host_does_not_have_defers() -> None:
    async with Witness("127.0.0.2") as witness:
        sources = [{"address": "203.0.113.77"}]
        async with routing(ZONE, connection={"port": witness.port}, sources=sources) as routed:
            result = await routed.send_one()
            assert (result.outcome.kind, witness.seen) == ("deferred", [])
            assert "203.0.113.77" in result.outcome.text


async def test_a_source_at_its_warmup_limit_is_replaced_by_another() -> None:
    sources = [{**warm("127.0.0.11", 1, 3, since=1), "weight": 65535}, {"address": "127.0.0.12"}]
    async with Witness("127.0.0.2") as witness:
        async with routing(ZONE, connection={"port": witness.port}, sources=sources) as routed:
            for _ in range(5):
                await routed.send_one()
        assert sorted(peer for peer, _ in witness.seen) == ["127.0.0.11"] * 3 + ["127.0.0.12"] * 2


async def test_mail_waits_for_tomorrow_when_every_source_is_at_its_limit() -> None:
    sources = [warm("127.0.0.11", 1), warm("127.0.0.12", 1)]
    async with Witness("127.0.0.2") as witness:
        async with routing(ZONE, connection={"port": witness.port}, sources=sources) as routed:
            await routed.send_one()
            await routed.send_one()
            deferral = await routed.attempt("bob@example.test")
        assert isinstance(deferral, Deferral)
        assert 0 < deferral.seconds <= 86400
        assert "has sent its 1 message " in deferral.reason
        assert len(witness.seen) == 2


async def test_a_failed_connection_is_not_counted_in_the_warmup() -> None:
    port = free_port()
    sources = [warm("127.0.0.11", 1)]
    async with routing(ZONE, connection={"port": port}, sources=sources) as routed:
        assert (await routed.send_one()).outcome.kind == "deferred"
        async with sinks("2", port=port):
            assert (await routed.send_one()).result == "success"
            assert isinstance(await routed.attempt("bob@example.test"), Deferral)


async def test_a_source_limited_by_a_policy_is_replaced_by_another() -> None:
    sources = [{"address": "127.0.0.11", "weight": 65535}, {"address": "127.0.0.12"}]
    paces = pacing(fields=["source"], match={"source": ["127.0.0.11"]}, rate="1/hour")
    async with Witness("127.0.0.2") as witness:
        async with routing(ZONE, connection={"port": witness.port}, sources=sources, paces=paces) as routed:
            for _ in range(4):
                await routed.send_one()
        assert sorted(peer for peer, _ in witness.seen) == ["127.0.0.11"] + ["127.0.0.12"] * 3


async def test_a_policy_on_the_site_parks_and_names_itself() -> None:
    paces = pacing(fields=["site"], rate="1/hour")
    async with Witness("127.0.0.2") as witness:
        async with routing(ZONE, connection={"port": witness.port}, paces=paces) as routed:
            await routed.send_one()
            deferral = await routed.attempt("bob@example.test")
        assert isinstance(deferral, Deferral)
        assert deferral.seconds > 60
        assert len(witness.seen) == 1


async def test_a_long_interval_between_connections_parks() -> None:
    paces = pacing(fields=["destination"], connectinterval="1h")
    async with Witness("127.0.0.2") as witness:
        sections: dict[str, Any] = {"connection": {"port": witness.port}, "pooling": {"transactions": 1}}
        async with routing(ZONE, paces=paces, **sections) as routed:
            await routed.send_one()
            deferral = await routed.attempt("bob@example.test")
        assert isinstance(deferral, Deferral)
        assert deferral.seconds > 60
        assert len(witness.seen) == 1
