"""test_concurrent_claims — workers with overlapping conditions never claim the same row, under any concurrent activity

Owns: proofs about claim.sql under concurrency: other claims, holds and releases.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from queued.claiming.claim import Claimer
from shared.config.queued.settings import Claim
from shared.postgres import database as db
from tests.fixtures.heard import until
from tests.fixtures.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from queued.values import Claimed
    from tests.fixtures.database.factory import Factory

ROWS, SESSIONS, BATCH = 2000, 4, 50
SETTINGS = Claim.model_validate({"lease": "15m", "poll": "1ms"})


async def drain(uri: str, where: str, number: int, left: asyncio.Event, ready: asyncio.Barrier) -> list[Claimed]:
    """Claim until no row is left: an empty claim may only mean that the others hold the rest."""
    connection = await db.connect(uri, f"worker {number}")
    claimer = Claimer(where, f"worker-{number}", SETTINGS)
    taken: list[Claimed] = []
    try:
        await ready.wait()  # else the first may have done it all before the last is connected
        taken += await claimer.take(connection, BATCH)
        await ready.wait()  # or before the last runs
        while not left.is_set():
            got = await claimer.take(connection, BATCH)
            taken += got
            if not got and await nothing_due(connection):
                left.set()
    finally:
        await connection.close()
    return taken


async def nothing_due(connection: db.Connection) -> bool:
    cursor = await connection.execute("SELECT count(*) FROM pillarbox.queue WHERE token IS NULL")
    return await cursor.fetchone() == (0,)


@pytest.mark.parametrize(
    "conditions",
    [
        ["true"] * SESSIONS,
        ["true", "metadata->>'_partid' IN ('1','4')", "metadata->>'_partid' IS NULL", "metadata->>'_partid' <> '4'"],
    ],
    ids=["same", "overlapping"],
)
async def test_every_row_is_claimed_exactly_once(factory: Factory, conditions: list[str]) -> None:
    for partid in ("1", "4", "9", None):
        factory.rows(ROWS // 4, partid=partid)
    left, ready = asyncio.Event(), asyncio.Barrier(len(conditions))
    async with asyncio.timeout(PATIENCE):
        shares = await asyncio.gather(
            *(drain(factory.uri, where, n, left, ready) for n, where in enumerate(conditions))
        )
    assert Counter(c.id for share in shares for c in share) == Counter(row.id for row in factory.queue())
    rows = {row.id: row for row in factory.queue()}
    assert all((rows[c.id].token, rows[c.id].retry_count) == (c.token, 1) for share in shares for c in share)
    assert sum(bool(share) for share in shares) > 1, "one session did it all: nothing was proven"
    tokens = [{c.token for c in share} for share in shares]
    assert sum(len(each) for each in tokens) == len(set().union(*tokens))


async def test_rows_locked_by_another_session_are_skipped_without_waiting(factory: Factory) -> None:
    locked, free = factory.row(due=timedelta(hours=-1)), factory.row()
    connection = await db.connect(factory.uri, "worker")
    claimer = Claimer("true", "worker", SETTINGS)
    with factory.another() as other:
        other.execute("SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE", (locked,))
        async with asyncio.timeout(PATIENCE):
            assert [c.id for c in await claimer.take(connection, 10)] == [free]
    later: list[int] = []

    async def taken() -> list[int]:
        later.extend(c.id for c in await claimer.take(connection, 10))
        return later

    await eventually(taken, "it is claimed by the next full pass, which follows a slow one after twenty times its time")
    assert later == [locked]
    await connection.close()


async def test_a_row_that_is_being_held_is_skipped(factory: Factory) -> None:
    """A claim that met the moved row would end with SQLSTATE 40001."""
    moving, free = factory.row(due=timedelta(hours=-1)), factory.row()
    connection = await db.connect(factory.uri, "worker")
    with factory.another() as operator:
        operator.execute("UPDATE pillarbox.queue SET status = 'HOLD' WHERE id = %s", (moving,))
        async with asyncio.timeout(PATIENCE):
            assert [c.id for c in await Claimer("true", "worker", SETTINGS).take(connection, 10)] == [free]
        operator.commit()
    assert await Claimer("true", "worker", SETTINGS).take(connection, 10) == []
    await connection.close()


async def test_claims_continue_while_an_operator_holds_and_releases(factory: Factory) -> None:
    ids = factory.rows(400)
    stop = asyncio.Event()

    async def operate() -> None:
        session = await psycopg.AsyncConnection.connect(factory.uri, autocommit=True)
        moves = 0
        while not stop.is_set() or moves < 10:
            for status in ("HOLD", "DELIVER"):
                await move(session, status, ids[moves % 4 :: 4])
            moves += 1
        await session.close()

    async def move(session: psycopg.AsyncConnection[Any], status: str, chosen: list[int]) -> None:
        """As an operator's command does: repeat if a claim came in between."""
        while True:
            try:
                await session.execute(
                    "UPDATE pillarbox.queue SET status = %s WHERE id = ANY(%s) AND status <> %s",
                    (status, chosen, status),
                )
            except psycopg.errors.SerializationFailure:
                continue
            return

    operating = asyncio.create_task(operate())
    connection = await db.connect(factory.uri, "worker")
    claimer, taken = Claimer("true", "worker", SETTINGS), Counter[int]()

    async def claim_all() -> None:
        while len(taken) < len(ids):
            try:
                taken.update(c.id for c in await claimer.take(connection, 7))
            except psycopg.errors.SerializationFailure:  # the move committed between our look and our lock
                continue

    claiming = asyncio.create_task(claim_all())
    await until(claiming.done, "every row to be claimed")
    stop.set()
    await asyncio.gather(operating, claiming)
    await connection.close()
    assert taken == Counter(ids)
    assert [row.retry_count for row in factory.queue()] == [1] * 400
    [body] = factory.bodies().values()
    assert (body.refcount, body.released, body.counted) == (400, None, 400)
