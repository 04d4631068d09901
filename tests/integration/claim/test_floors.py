"""test_floors — while an old snapshot is held, a claim does not scan any class from its beginning again

Owns: proofs about the floors in queued/claiming/claim.py, by the blocks that claims read; about urgent mail that
    waits to be tried again; and about how often there is a full pass.
See: queued/claiming/claim.py; queued/claiming/floor.py; test_backlog.py for the time that claims of ordinary
    mail take.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import product
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from queued.claiming import floor
from queued.claiming.claim import NO_FLOORS, NOTHING_LOST, Claimer, _class, exhausted
from queued.claiming.floor import FullPass
from shared.config.queued.settings import Claim
from shared.postgres import database as db
from shared.postgres.queries import where_query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.database.factory import Factory

pytestmark = pytest.mark.counts_pages

WHERE = "metadata->>'_partid' IN ('1','2','3')"
GONE = 4000
BATCH = 200
CLASSES = {
    "floor_urgent": (5, None),
    "floor_urgent_retried": (5, "451 Later"),
    "floor": (0, None),
    "floor_retried": (0, "451 Later"),
    "floor_bulk": (-5, None),
}


@asynccontextmanager
async def claiming(factory: Factory) -> AsyncIterator[tuple[db.Connection, Claimer]]:
    """A worker beside a session that holds an old snapshot."""
    factory.sql("ALTER TABLE pillarbox.queue_def_123 SET (autovacuum_enabled = off)")
    pool = await db.open_pool(factory.uri, "worker", 1)
    try:
        async with pool.connection() as connection:
            with factory.another() as old:
                old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                old.execute("SELECT count(*) FROM pillarbox.settings")
                yield (
                    connection,
                    Claimer(WHERE, "w", Claim.model_validate({"poll": "1h", "retried": 0.5, "ordinary": 0})),
                )
    finally:
        await pool.close()


def fill(factory: Factory, name: str, count: int, due: timedelta = timedelta(hours=-9)) -> list[int]:
    priority, error = CLASSES[name]
    ids = factory.rows(count, due=due)
    factory.sql(
        """UPDATE pillarbox.queue
              SET priority = %(p)s, last_error = %(e)s, next_retry = next_retry + id * interval '1 second'
            WHERE id = ANY (%(ids)s)""",
        p=priority,
        e=error,
        ids=ids,
    )
    return ids


async def take_all(factory: Factory, connection: db.Connection, claimer: Claimer) -> int:
    """Claim until nothing is left; finish the claimed rows."""
    total = 0
    while taken := await claimer.take(connection, BATCH):
        factory.sql("DELETE FROM pillarbox.queue WHERE id = ANY (%(ids)s)", ids=[c.id for c in taken])
        total += len(taken)
    return total


async def blocks(connection: db.Connection, floors: dict[str, Any]) -> int:
    """How many blocks a claim with these floors would read; it is not made."""
    values = {
        "now": None,
        **NO_FLOORS,
        **floors,
        "batch": BATCH,
        "ordinary": 0,
        "retried": 100,
        "worker": "w",
        "suspects": False,
    }
    values |= {"token": 1}
    text = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) " + where_query("claim", WHERE, **NOTHING_LOST)
    async with connection.transaction(force_rollback=True):
        [[[plan]]] = await (
            await connection.execute(text.encode(), values | {"lease": timedelta(minutes=15)})
        ).fetchall()
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


@pytest.mark.parametrize("name", CLASSES)
async def test_finished_rows_of_a_class_are_not_scanned_again(factory: Factory, name: str) -> None:
    async with claiming(factory) as (connection, claimer):
        fill(factory, name, GONE)
        assert await take_all(factory, connection, claimer) == GONE
        assert claimer._floors.keys() == CLASSES.keys()
        [last] = factory.rows(1, due=timedelta(seconds=-1))
        priority, error = CLASSES[name]
        factory.sql("UPDATE pillarbox.queue SET priority = %(p)s, last_error = %(e)s", p=priority, e=error)
        assert await blocks(connection, {}) > 10 * await blocks(connection, claimer._floors)
        assert [c.id for c in await claimer.take(connection, BATCH)] == [last]


@pytest.mark.parametrize("name", CLASSES)
async def test_finished_rows_are_not_scanned_again_for_an_empty_class(factory: Factory, name: str) -> None:
    """A class that has nothing is looked at by every claim that has room for it."""
    async with claiming(factory) as (connection, claimer):
        fill(factory, name, GONE)
        assert await take_all(factory, connection, claimer) == GONE
        claimer.start_over()
        assert await claimer.take(connection, BATCH) == []
        assert claimer._floors.keys() == CLASSES.keys()
        assert await blocks(connection, {}) > 10 * await blocks(connection, claimer._floors)


async def test_a_backlog_of_urgent_retries_does_not_delay_new_urgent_mail(factory: Factory) -> None:
    async with claiming(factory) as (connection, claimer):
        retried = fill(factory, "floor_urgent_retried", 1000)
        fresh = fill(factory, "floor_urgent", 150, timedelta(hours=-1))
        ordinary = fill(factory, "floor", 50, timedelta(hours=-20))
        first = {c.id for c in await claimer.take(connection, BATCH)}
        assert len(first & set(fresh)) == len(first & set(retried)) == BATCH // 2
        second = {c.id for c in await claimer.take(connection, BATCH)}
        assert second >= set(fresh) - first
        assert not (first | second) & set(ordinary)


def by_brute_force(waiting: dict[str, int], limit: int, retried: int) -> tuple[dict[str, int], set[str]]:
    """The rows that claim.sql takes of each class, and the exhausted classes."""
    taken = dict.fromkeys(waiting, 0)
    room = limit
    for fresh, tried in (("floor_urgent", "floor_urgent_retried"), ("floor", "floor_retried")):
        kept = min(retried, room, waiting[tried])
        taken[fresh] = min(waiting[fresh], room - kept)
        taken[tried] = min(waiting[tried], room - taken[fresh])
        room -= taken[fresh] + taken[tried]
    taken["floor_bulk"] = min(waiting["floor_bulk"], room)
    return taken, {name for name in waiting if taken[name] == waiting[name]}


def test_a_class_counts_as_exhausted_only_if_read_to_its_end() -> None:
    for counts in product((0, 1, 2, 4), repeat=5):
        for retried in (0, 1, 3):
            waiting = dict(zip(CLASSES, counts, strict=True))
            taken, emptied = by_brute_force(waiting, 3, retried)
            assert exhausted(taken, 3, retried) <= emptied
    assert exhausted({}, 3, 1) == CLASSES.keys()
    assert exhausted({"floor": 2, "floor_retried": 1}, 3, 1) == {"floor_urgent", "floor_urgent_retried"}
    assert exhausted({"floor_retried": 3}, 3, 1) == {"floor_urgent", "floor_urgent_retried", "floor"}


def test_an_exhausted_class_has_no_due_rows(factory: Factory) -> None:
    """With any due rows and any shares; a class wrongly called exhausted would wait for the next full pass."""
    chance = random.Random(15)
    message = factory.message()
    with factory.another() as session:
        for _ in range(150):
            limit = chance.choice((1, 1, 2, 3, 4, 5, 8, 12))
            waiting = {name: chance.choice((0, 0, 1, 2, limit // 2, limit, 2 * limit)) for name in CLASSES}
            ordinary, again = chance.randint(0, limit), chance.randint(0, limit)
            values: dict[str, Any] = {
                "batch": limit,
                "ordinary": ordinary,
                "retried": again,
                "suspects": False,
                "now": None,
                "token": 1,
                "worker": "w",
                "lease": timedelta(minutes=15),
                **NO_FLOORS,
            }
            for name, count in waiting.items():
                priority, error = CLASSES[name]
                session.execute(
                    """INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain, size, metadata,
                                                    priority, last_error, next_retry)
                       SELECT %(m)s, 'r', 'example.com', 100, '{"_partid": "1"}', %(p)s, %(e)s,
                              now() - interval '1 hour'
                         FROM generate_series(1, %(c)s)""",
                    {"m": message, "p": priority, "e": error, "c": count},
                )
            rows = session.execute(where_query("claim", WHERE, **NOTHING_LOST).encode(), values).fetchall()
            session.rollback()
            taken = Counter(_class(row.priority, tried=row.tried_before) for row in rows)
            case = {**values, "waiting": waiting, "taken": dict(taken)}
            assert len(rows) == min(limit, sum(waiting.values())), case
            left = {name for name in CLASSES if taken[name] < waiting[name]}
            named = exhausted(taken, limit, again, ordinary)
            assert not named & left, case
            if len(rows) < limit:
                assert named == CLASSES.keys(), case


def test_full_passes_take_a_twentieth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    now = monotonic()
    monkeypatch.setattr(floor, "monotonic", lambda: now)
    passes = FullPass(0.1)
    now += 0.2  # a quick pass is allowed at any time
    passes.done(now - 0.2)
    assert passes.due()
    passes = FullPass(5)
    spent, began = 0.0, now
    for cost in [0.01, 2.0, 3.0, 0.5, 0.01] * 20:
        assert passes.due()
        started = now
        now += cost
        passes.done(started)
        spent += cost
        while not passes.due():
            now += 0.1
        assert now - started >= 5
    assert spent <= (now - began) / 20
    passes.hurry()
    assert passes.due()
