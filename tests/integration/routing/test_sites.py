"""test_sites — domains with the same exchangers share a transaction, and dead exchangers are tried last

See: tests/unit/routing/test_mx_site.py and test_dead_hosts.py for the decisions;
    tests/scenario/delivery/test_mail_follows_mx.py for daemons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queued.deliver import Deferral
from queued.pacing.pace import Paces
from shared.config.queued.pacing import Pacing
from tests.fixtures.daemons.routed import routing, sinks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fixtures.daemons.routed import Routed
    from tests.fixtures.heard import Heard

ZONE: dict[tuple[str, str], Sequence[str]] = {
    ("one.test", "MX"): ["10 mx1.test.", "20 mx2.test."],
    ("two.test", "MX"): ["20 mx2.test.", "10 mx1.test."],
    ("other.test", "MX"): ["10 mx2.test.", "20 mx1.test."],
    ("equal.test", "MX"): ["10 mx1.test.", "10 mx2.test."],
    ("mx1.test", "A"): ["127.0.0.2"],
    ("mx2.test", "A"): ["127.0.0.3"],
}
BOTH = ("a@one.test", "b@two.test")


def shared(port: int, **more: Any) -> dict[str, Any]:
    return {"port": port, "sites": True, **more}


def ways(routed: Routed, *domains: str) -> int:
    """How many ways these go."""
    return len({routed.transport.way(domain) for domain in domains})


async def test_domains_of_one_site_share_a_destination_once_known() -> None:
    async with sinks("2") as (sink,), routing(ZONE, connection=shared(sink.port)) as routed:
        assert ways(routed, "one.test", "two.test", "other.test") == 3
        for recipient in (*BOTH, "c@other.test"):
            await routed.send_one(recipient)
        assert ways(routed, "one.test", "two.test", "other.test") == 2
        assert [result.result for result in await routed.send(*BOTH)] == ["success"] * 2
        assert sink.received[-1].recipients == BOTH


async def test_by_default_each_domain_has_its_own_destination() -> None:
    async with sinks("2") as (sink,), routing(ZONE, connection={"port": sink.port}) as routed:
        for recipient in BOTH:
            await routed.send_one(recipient)
        assert ways(routed, "one.test", "two.test") == 2


async def test_a_policy_on_destinations_keeps_domains_separate() -> None:
    paces = Paces(Pacing.model_validate({"policies": [{"id": "p", "fields": ["destination"], "rate": "9/sec"}]}))
    async with sinks("2") as (sink,), routing(ZONE, connection=shared(sink.port), paces=paces) as routed:
        for recipient in BOTH:
            await routed.send_one(recipient)
        assert ways(routed, "one.test", "two.test") == 2


async def test_a_domain_that_left_its_site_is_parked_and_sent_separately() -> None:
    async with sinks("2") as (sink,), routing(ZONE, connection=shared(sink.port)) as routed:
        await routed.send_one("c@other.test")  # as if one.test had been there before
        deferral = await routed.attempt("a@one.test", "c@other.test")
        assert isinstance(deferral, Deferral)
        assert len(sink.received) == 1
        assert ways(routed, "one.test", "other.test") == 2


async def test_an_exchanger_that_did_not_answer_is_tried_last(heard: Heard) -> None:
    # That chance alone avoids the dead one 30 times has a chance of one in 2 ** 30.
    async with sinks("3") as (sink,), routing(ZONE, connection={"port": sink.port}) as routed:
        for _ in range(30):
            assert (await routed.send_one("a@equal.test")).result == "success"
    assert len(heard.all("failover.passed")) == 1


async def test_with_avoid_0_a_dead_exchanger_is_tried_each_time(heard: Heard) -> None:
    async with sinks("3") as (sink,), routing(ZONE, connection={"port": sink.port, "avoid": "0s"}) as routed:
        for _ in range(60):
            await routed.send_one("a@equal.test")
    assert len(heard.all("failover.passed")) > 1


async def test_policies_can_match_the_site() -> None:
    policy = {"id": "p", "fields": ["site"], "match": {"site": ["(mx1|mx2).test"]}, "rate": "1/hour"}
    paces = Paces(Pacing.model_validate({"policies": [policy]}))
    async with sinks("2") as (sink,), routing(ZONE, connection={"port": sink.port}, paces=paces) as routed:
        await routed.send_one("a@one.test")
        deferral = await routed.attempt("b@two.test")
        assert isinstance(deferral, Deferral)
        assert len(sink.received) == 1
