"""test_leaves — a statement about claimed recipients opens only their leaves, however many the queue has

Owns: proofs about queued/claiming/leaves.py and {among} in sql/queries, on PostgreSQL, with more leaves than a
    statement names.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from queued.claiming.claim import Claimer
from queued.claiming.leaves import MOST, Leaves, among
from queued.in_flight import InFlight, _Parked
from queued.values import OnHold
from shared.config.queued.settings import Claim
from shared.postgres import database
from tests.fixtures.database.results import DELIVERED, FAILED, WORKER, claim, deferred, finished, running_recorder
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from queued.values import Claimed, Result
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

SOME = 40  # leaves beside the shipped ones
LATER = datetime.now(UTC) + timedelta(hours=1)

type Doing = Callable[[database.Connection, Sequence[Claimed]], Awaitable[Any]]


@pytest.fixture
def split(factory: Factory) -> Factory:
    """A queue of many leaves, and mail in each of them."""
    for number in range(SOME):
        factory.sql("SELECT pillarbox.queue_leaf_create(%(id)s, ARRAY[%(id)s])", id=f"leaf{number}")
        factory.row(partid=f"leaf{number}")
    return factory


async def opened(pool: database.Pool, doing: Doing, claimed: Sequence[Claimed]) -> set[str]:
    """The leaves that are locked after that was done, planning included."""
    async with pool.connection() as connection, connection.transaction(force_rollback=True):
        await doing(connection, claimed)
        rows = await (
            await connection.execute(
                """SELECT DISTINCT c.relname::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                    WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND c.relname ~ '^queue_'
                      AND c.relkind = 'r'"""
            )
        ).fetchall()
    return {name for (name,) in rows}


async def test_each_statement_opens_the_leaves_of_its_recipients_only(split: Factory) -> None:
    taken = (await claim(split.uri, SOME))[: MOST - 1]
    homes = {f"queue_def_{c.partid}" for c in taken}
    pool = await database.open_pool(split.uri, "leaves", 2)
    claimer = Claimer("true", WORKER, Claim())
    in_flight = InFlight(pool, claimer, Claim())
    async with running_recorder(split.uri) as recorder:

        def recording(make: Callable[[Claimed], Result]) -> Doing:
            return lambda connection, claimed: recorder._settle(connection, [make(c) for c in claimed])

        statements: dict[str, Doing] = {
            "success": recording(lambda c: finished(c, DELIVERED, "success")),
            "failed": recording(lambda c: finished(c, FAILED, "failed")),
            "deferred": recording(lambda c: deferred(c, LATER)._replace(late=LATER)),
            "heartbeat": claimer.extend,
            "give back": claimer.give_back,
            "park": lambda connection, claimed: in_flight._park_among(
                connection, [_Parked(c, 60, "busy", 0) for c in claimed], among(Leaves().named(claimed))
            ),
        }
        try:
            for name, doing in statements.items():
                for _ in range(7):  # the driver prepares a statement after five
                    assert await opened(pool, doing, taken) == homes, name
            # A statement that moves rows opens their target as well.
            held = recording(lambda c: deferred(c, LATER)._replace(held=OnHold("a rule said so")))
            assert await opened(pool, held, taken) == homes | {"queue_hold"}
        finally:
            await pool.close()


async def test_a_missing_body_is_looked_up_in_its_leaf_only(split: Factory) -> None:
    [one] = [c for c in await claim(split.uri, SOME) if c.partid == "leaf7"]
    split.sql("DELETE FROM pillarbox.messages WHERE id = %(id)s", id=one.message_id)
    pool = await database.open_pool(split.uri, "leaves", 1)

    async def hold(connection: database.Connection, claimed: Sequence[Claimed]) -> None:
        values: dict[str, Any] = {"ids": [c.id for c in claimed], "messages": [c.message_id for c in claimed]}
        values |= {"tokens": [c.token for c in claimed], "partids": ["leaf7"]}
        rows = await database.fetch(connection, "hold_missing_body", now=None, **values)
        assert [row.id for row in rows] == [one.id]

    try:
        assert await opened(pool, hold, [one]) == {"queue_def_leaf7", "queue_hold"}
    finally:
        await pool.close()


async def test_results_of_many_leaves_are_recorded_in_a_few_statements(split: Factory, heard: Heard) -> None:
    async with running_recorder(split.uri) as recorder:
        recorder.add([finished(c, DELIVERED, "success") for c in await claim(split.uri, SOME)])
        async with asyncio.timeout(PATIENCE):
            await recorder.drained()
    assert len(split.archive()) == SOME
    assert heard.all("claim.lost") == []
    assert sorted(group["results"] for group in heard.all("result.group")) == [SOME % MOST, MOST, MOST]


@pytest.mark.parametrize("partid", [None, "1", "unknown", "it's 100% \\ odd"])
async def test_a_recipient_of_any_partition_id_is_found_in_its_leaf(factory: Factory, partid: str | None) -> None:
    factory.rows(3, partid=partid)
    [one, two, three] = await claim(factory.uri)
    assert one.partid == partid
    pool = await database.open_pool(factory.uri, "leaves", 1)
    claimer = Claimer("true", WORKER, Claim())
    try:
        async with pool.connection() as connection:
            assert all((await claimer.extend(connection, [one, two, three])).values())
            await claimer.give_back(connection, [three])
    finally:
        await pool.close()
    async with running_recorder(factory.uri) as recorder:
        recorder.add([finished(one, DELIVERED, "success"), deferred(two, LATER)])
        await recorder.drained()
    assert [row.id for row in factory.archive()] == [one.id]
    assert [(row.id, row.token) for row in factory.queue()] == [(two.id, None), (three.id, None)]


async def test_a_recipient_moved_to_another_leaf_is_found(factory: Factory, heard: Heard) -> None:
    """On hold, or under another partition id, while it was being sent."""
    held, moved, asked = factory.rows(3, partid="1")
    taken = await claim(factory.uri)
    factory.move([held], "HOLD")
    factory.sql("""UPDATE pillarbox.queue SET metadata = metadata || '{"_partid": "4"}' WHERE id = %(id)s""", id=moved)
    factory.move([asked], "DELETE")
    pool = await database.open_pool(factory.uri, "leaves", 1)
    try:
        async with pool.connection() as connection:
            extended = await Claimer("true", WORKER, Claim()).extend(connection, taken)
        assert extended == {(c.id, c.token): True for c in taken}
    finally:
        await pool.close()
    async with running_recorder(factory.uri) as recorder:
        recorder.add([finished(c, DELIVERED, "success") for c in taken])
        await recorder.drained()
    assert sorted(row.id for row in factory.archive()) == sorted([held, moved, asked])
    assert heard.all("claim.lost") == []
    assert factory.queue() == []


async def test_recipients_of_repartitioned_leaves_are_found(factory: Factory) -> None:
    """The partition ids stay; their tables are others by then."""
    factory.rows(2, partid="unheard")
    taken = await claim(factory.uri)
    factory.sql(
        """WITH gone AS (DELETE FROM pillarbox.queue RETURNING *), leaf AS MATERIALIZED (SELECT * FROM gone)
           SELECT * INTO TEMP aside FROM leaf"""
    )
    factory.sql("SELECT pillarbox.queue_leaf_create('unheard', ARRAY['unheard'])")
    factory.sql("INSERT INTO pillarbox.queue SELECT * FROM aside")
    async with running_recorder(factory.uri) as recorder:
        recorder.add([finished(c, DELIVERED, "success") for c in taken])
        await recorder.drained()
    assert len(factory.archive()) == 2
