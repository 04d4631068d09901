"""test_unanswered — what a claim took whose answer was lost is due to the worker that made it, and to no other

Owns: row 6b of the crash table: proofs about queued.claiming.claim.Claimer and the parameter `unanswered` of claim.sql.
See: tests/scenario/crash/test_answer_of_a_claim_is_lost.py for a whole worker.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from queued.claiming.claim import Claimer
from shared.config.queued.settings import Claim
from shared.postgres import database as db
from tests.fixtures.peers.proxy import relaying
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.database.factory import Factory


def claimer(name: str = "worker", lease: str = "15m") -> Claimer:
    return Claimer("true", name, Claim.model_validate({"lease": lease, "poll": "1h"}))


async def unanswered(factory: Factory, claims: Claimer, ids: Callable[[], list[int]], limit: int) -> list[int]:
    """A claim of `limit` of these that PostgreSQL commits, and whose connection breaks before the answer; all ids."""
    async with relaying(factory.uri) as proxy, await db.connect(proxy.uri, "claimer") as connection:
        assert await claims.take(connection, 1) == []  # a full pass, so that the next claim is one statement
        made = ids()
        proxy.deaf()
        claiming = asyncio.create_task(claims.take(connection, limit))
        committed = "SELECT count(*) = %(limit)s FROM pillarbox.queue WHERE lease_until > now()"
        await eventually(lambda: factory.one(committed, limit=limit), "the claim is committed")
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            await claiming
    return made


async def test_the_same_worker_claims_them_again_as_the_same_try(factory: Factory) -> None:
    claims = claimer()
    ids = await unanswered(factory, claims, lambda: factory.rows(5), 3)
    async with await db.connect(factory.uri, "claimer") as connection:
        assert [c.id for c in await claims.take(connection, 2)] == ids[:2]
        assert [c.id for c in await claims.take(connection, 5)] == ids[2:], "one of them was forgotten"
    assert [(row.retry_count, row.lost_count) for row in factory.queue(*ids)] == [(1, 0)] * 5
    assert factory.attempts() == []


async def test_another_worker_waits_for_the_lease(factory: Factory) -> None:
    await unanswered(factory, claimer(), lambda: factory.rows(2), 2)
    async with await db.connect(factory.uri, "claimer") as connection:
        assert await claimer("another").take(connection, 5) == []


async def test_once_the_lease_is_over_the_claim_counts_as_lost(factory: Factory) -> None:
    """As for every other worker: the token is known for no longer than the lease."""
    claims = claimer(lease="1s")
    [id_] = await unanswered(factory, claims, lambda: factory.rows(1), 1)
    over = "SELECT lease_until < clock_timestamp() FROM pillarbox.queue"
    await eventually(lambda: factory.one(over), "the lease is over")
    async with await db.connect(factory.uri, "claimer") as connection:
        assert [c.id for c in await claims.take(connection, 5)] == [id_]
    assert [(row.retry_count, row.lost_count) for row in factory.queue(id_)] == [(2, 1)]
    assert [row.outcome for row in factory.attempts()] == ["lease_expired"]


async def test_mail_that_was_put_on_hold_meanwhile_is_not_claimed(factory: Factory) -> None:
    claims = claimer()
    held, due = await unanswered(factory, claims, lambda: factory.rows(2), 2)
    factory.move([held], "HOLD")
    async with await db.connect(factory.uri, "claimer") as connection:
        assert [c.id for c in await claims.take(connection, 5)] == [due]


async def test_mail_that_was_lost_before_is_counted_lost_once(factory: Factory) -> None:
    """It comes separately, as whatever may have been lost twice."""

    def lost() -> list[int]:
        ids = factory.rows(1)
        factory.lease(ids, ends=timedelta(seconds=-1))
        return ids

    claims = claimer()
    [id_] = await unanswered(factory, claims, lost, 1)
    claims.start_over()
    async with await db.connect(factory.uri, "claimer") as connection:
        assert [c.id for c in await claims.take(connection, 5)] == [id_]
    assert [(row.retry_count, row.lost_count) for row in factory.queue(id_)] == [(2, 1)]
    assert [row.outcome for row in factory.attempts()] == ["lease_expired"]


async def test_a_refused_claim_took_nothing(factory: Factory) -> None:
    """PostgreSQL has answered, so the next claim asks for no token."""
    claims = claimer()
    async with (
        await db.connect(factory.uri, "claimer") as connection,
        await db.connect(factory.uri, "claimer") as other,
    ):
        await connection.execute("SET statement_timeout = 1")
        async with other.transaction():
            await other.execute("LOCK TABLE pillarbox.queue IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(db.CANCELLED):
                await claims.take(connection, 1)
    assert claims._unanswered == {}
