"""test_fence — a worker that survived a failover does not touch other mail, although ids are reused

Owns: the proof that every fence asks for the message and a random token beside the id. `taken_over` does to the
    database the effect of promoting a lagging standby: rows are gone, sequences are behind, and new mail has the
    old ids.
See: sql/README.md, "Ids and timelines"; the same with real servers: tests/chaos/failover.py, `past_survivors`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from queued.claiming.bodies import Bodies
from queued.claiming.claim import Claimer
from queued.deliver import Deferral
from queued.in_flight import InFlight
from queued.values import OnHold
from shared.config.queued.settings import Claim
from shared.postgres import database
from tests.fixtures.database.results import DELIVERED, FAILED, WORKER, claim, deferred, finished, running_recorder

if TYPE_CHECKING:
    from queued.values import Claimed
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

COUNT = 5


def lagging(factory: Factory) -> None:
    """The mail of the last moments is unknown, and so are the numbers it had."""
    factory.sql("DELETE FROM pillarbox.queue")
    factory.sql("DELETE FROM pillarbox.messages")
    for sequence in ("queue_id_seq", "claim_token_seq"):
        factory.sql(f"SELECT setval('pillarbox.{sequence}', 1, false)")


async def taken_over(factory: Factory) -> tuple[list[Claimed], list[Claimed]]:
    """Our claims before the failover, and another worker's claims since: the same ids."""
    factory.rows(COUNT)
    ours = await claim(factory.uri)
    lagging(factory)
    factory.rows(COUNT)
    theirs = await claim(factory.uri)
    assert [c.id for c in ours] == [c.id for c in theirs]
    assert not {c.message_id for c in ours} & {c.message_id for c in theirs}
    return ours, theirs


def untouched(factory: Factory, theirs: list[Claimed]) -> bool:
    """Whether the other worker has its claims as it took them."""
    rows = factory.queue()
    assert [(row.id, row.token, row.status, row.last_error) for row in rows] == [
        (c.id, c.token, "DELIVER", None) for c in theirs
    ]
    return all(row.lease_until is not None and row.retry_count == 1 for row in rows)


@pytest.mark.parametrize("result", ["success", "failed", "deferred", "held"])
async def test_a_late_result_does_not_settle_new_mail_with_the_same_id(
    factory: Factory, heard: Heard, result: str
) -> None:
    ours, theirs = await taken_over(factory)
    later = datetime.now(UTC) + timedelta(hours=1)
    results = {
        "success": lambda c: finished(c, DELIVERED, "success"),
        "failed": lambda c: finished(c, FAILED, "failed"),
        "deferred": lambda c: deferred(c, later)._replace(late=later),
        "held": lambda c: deferred(c, later)._replace(held=OnHold("a rule said so")),
    }
    async with running_recorder(factory.uri) as recorder:
        recorder.add([results[result](c) for c in ours])
        await recorder.drained()
    assert untouched(factory, theirs)
    assert factory.archive() == []
    assert factory.sql("SELECT FROM pillarbox.notices") == []
    assert len(heard.all("claim.lost")) == COUNT
    assert {row.messages__id for row in factory.attempts()} == {c.message_id for c in ours}


async def test_heartbeats_releases_and_parking_do_not_touch_new_mail(factory: Factory) -> None:
    ours, theirs = await taken_over(factory)
    claimer = Claimer("true", WORKER, Claim())
    pool = await database.open_pool(factory.uri, "hand", 1)
    try:
        async with pool.connection() as connection:
            assert await claimer.extend(connection, ours) == {}
            await claimer.give_back(connection, ours)
        hand = InFlight(pool, claimer, Claim())
        parked = [hand_parked(c) for c in ours]
        assert await hand._park(parked) == set()
    finally:
        await pool.close()
    assert untouched(factory, theirs)


async def test_a_missing_body_does_not_hold_new_mail(factory: Factory) -> None:
    ours, theirs = await taken_over(factory)
    factory.sql("DELETE FROM pillarbox.messages")
    pool = await database.open_pool(factory.uri, "bodies", 1)
    try:
        assert await Bodies(pool, 1000).hold_missing(ours) == set()
    finally:
        await pool.close()
    assert untouched(factory, theirs)


async def test_late_and_current_results_with_the_same_id_are_distinguished_in_one_group(factory: Factory) -> None:
    """One worker may have both in flight: mail sent before the failover, and mail claimed since."""
    ours, theirs = await taken_over(factory)
    later = datetime.now(UTC) + timedelta(hours=1)
    async with running_recorder(factory.uri) as recorder:
        recorder.add([deferred(c, later)._replace(late=later) for c in ours])
        recorder.add([deferred(c, later) for c in theirs])
        await recorder.drained()
    assert [(row.token, row.noticed) for row in factory.queue()] == [(None, None)] * COUNT


async def test_tokens_are_not_consecutive(factory: Factory) -> None:
    factory.rows(COUNT)
    tokens = [(await claim(factory.uri, 1))[0].token for _ in range(COUNT)]
    assert len(set(tokens)) == COUNT
    assert all(0 <= token < 1 << 63 for token in tokens)
    assert max(tokens) > 1 << 55  # of five random numbers of 63 bits, but for one run in 2^40


def hand_parked(c: Claimed) -> Any:
    """As InFlight.park keeps it."""
    from queued.in_flight import _Parked  # noqa: PLC0415 - it is internal

    until = Deferral(60.0, "20 connections")
    return _Parked(c, until.seconds, until.reason, 0.0)
