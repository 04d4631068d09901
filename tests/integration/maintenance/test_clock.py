"""test_clock — mail whose times were written before the server's clock was put back does not wait for them

Owns: proofs about maintain_clock of sql/schema/15_maintenance.sql and the views of what is alive.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from queued.claiming.register import Register
from shared.config.queued.settings import Claim
from shared.postgres import database as db
from shared.postgres.presence import Identity
from tests.fixtures.database.maintaining import one_round
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

AHEAD = timedelta(hours=2)
MINUTE = timedelta(minutes=1)


def put_back(factory: Factory, *ids: int, by: timedelta = AHEAD) -> None:
    """As if these recipients, and the latest note of the time, had been written while the clock was ahead."""
    factory.sql(
        """UPDATE pillarbox.queue
              SET ts = ts + %(by)s, next_retry = next_retry + %(by)s, last_retry = last_retry + %(by)s,
                  lease_until = lease_until + %(by)s
            WHERE id = ANY(%(ids)s)""",
        by=by,
        ids=list(ids),
    )
    factory.sql("UPDATE pillarbox.locks SET until = now() + %(by)s WHERE name = 'clock'", by=by)


def deferred(factory: Factory, *ids: int, wait: timedelta) -> None:
    """As if their first try had failed now, and the next were after this time."""
    factory.sql(
        """UPDATE pillarbox.queue
              SET last_retry = now(), next_retry = now() + %(wait)s, retry_count = 1, last_error = '451 no'
            WHERE id = ANY(%(ids)s)""",
        wait=wait,
        ids=list(ids),
    )


def due(factory: Factory, row: int) -> timedelta:
    [found] = factory.sql("SELECT next_retry - now() AS wait FROM pillarbox.queue WHERE id = %(id)s", id=row)
    return timedelta(seconds=found.wait.total_seconds())


async def test_mail_is_due_as_long_from_now_as_it_was_before(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    fresh, tried, urgent = factory.row(), factory.row(partid="2"), factory.row(partid=None)
    factory.sql("UPDATE pillarbox.queue SET priority = 5 WHERE id = %(id)s", id=urgent)
    deferred(factory, tried, urgent, wait=timedelta(minutes=10))
    put_back(factory, fresh, tried, urgent)

    assert await one_round(connection)

    assert due(factory, fresh) <= timedelta()
    for row in (tried, urgent):
        assert timedelta(minutes=9) < due(factory, row) <= timedelta(minutes=10)
    [said] = heard.all("maintain.clock")
    assert said["recipients"] == 3
    assert 7000 < said["seconds"] <= 7200
    before = factory.queue()
    assert await one_round(connection)
    assert (factory.queue(), len(heard.all("maintain.clock"))) == (before, 1)


async def test_the_claim_of_a_dead_worker_ends_as_soon_as_it_would_have(
    factory: Factory, connection: db.Connection
) -> None:
    row = factory.row()
    factory.lease([row], ends=timedelta(minutes=15))
    put_back(factory, row)

    assert await one_round(connection)

    [claimed] = factory.queue(row)
    assert claimed.token is not None
    assert due(factory, row) <= timedelta()
    left = factory.one("SELECT lease_until - now() FROM pillarbox.queue")
    assert timedelta(minutes=15) < left <= timedelta(minutes=16)  # it was claimed a minute before


async def test_mail_of_before_and_after_keeps_its_times(factory: Factory, connection: db.Connection) -> None:
    """The times of its sender's too, which are true ones, and those of mail on hold, which has none to wait for."""
    scheduled, held, earlier, later = factory.row(due=timedelta(hours=5)), factory.row(status="HOLD"), *factory.rows(2)
    put_back(factory, scheduled, held)
    deferred(factory, earlier, later, wait=timedelta(hours=4))
    factory.sql("UPDATE pillarbox.queue SET last_retry = last_retry - interval '1 day' WHERE id = %(id)s", id=earlier)
    before = factory.queue()

    assert await one_round(connection)

    assert factory.queue() == before


@pytest.mark.parametrize("by", [timedelta(seconds=50), -AHEAD])
async def test_a_clock_put_forward_or_hardly_back_moves_nothing(
    factory: Factory, connection: db.Connection, heard: Heard, by: timedelta
) -> None:
    put_back(factory, factory.row(), by=by)
    before = factory.queue()

    assert await one_round(connection)

    assert (factory.queue(), heard.all("maintain.clock")) == (before, [])
    noted = factory.one("SELECT until - now() FROM pillarbox.locks WHERE name = 'clock'")
    assert -MINUTE < noted <= MINUTE


async def test_the_time_is_noted_once_a_minute(factory: Factory, connection: db.Connection) -> None:
    noted = []
    for _ in range(3):
        assert await one_round(connection)
        noted.append(factory.one("SELECT until FROM pillarbox.locks WHERE name = 'clock'"))
    assert noted[0] is not None
    assert len(set(noted)) == 1


async def test_a_worker_notices_that_its_last_beat_lies_in_the_future(database: str, factory: Factory) -> None:
    pool = await db.open_pool(database, "beats", 1)
    beats = Register(pool, Identity("w"), "true", Claim(poll=timedelta(seconds=1)), ["default"])
    running = asyncio.create_task(beats.run())
    try:
        seen = "SELECT seen FROM pillarbox.workers"
        await eventually(lambda: factory.sql(seen) != [], "the worker is registered")
        factory.sql("UPDATE pillarbox.workers SET seen = now() + interval '2 hours'")
        noted = "SELECT until > now() + interval '119 minutes' FROM pillarbox.locks WHERE name = 'clock'"
        await eventually(lambda: factory.one(noted) is True, "the latest time is noted")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await pool.close()


def test_each_call_goes_on_where_the_last_stopped_whoever_made_it(factory: Factory, database: str) -> None:
    rows = [*factory.rows(5), *factory.rows(3, partid="2"), *factory.rows(2, partid="no leaf of its own")]
    put_back(factory, *rows)
    moved, calls, more = 0, 0, True
    while more:
        with psycopg.connect(database) as session:  # a worker that is killed after each call
            done = session.execute("SELECT moved, more FROM pillarbox.maintain_clock(2)").fetchone()
        assert done is not None
        assert done[0] <= 2
        moved, more, calls = moved + done[0], done[1], calls + 1
        assert calls < 100
    assert moved == 10
    assert all(due(factory, row) <= timedelta() for row in rows)
    assert factory.one(
        "SELECT holder IS NULL AND until < now() + interval '1 minute' FROM pillarbox.locks WHERE name = 'clock'"
    )


def test_a_pass_that_was_cut_short_is_not_gone_on_with_the_next_time(factory: Factory) -> None:
    """The clock is put back, put forward again amid the pass, and put back once more."""
    rows = factory.rows(4)
    put_back(factory, *rows)
    factory.sql("SELECT pillarbox.maintain_clock(2)")
    factory.sql("UPDATE pillarbox.locks SET until = now() WHERE name = 'clock'")
    assert factory.one("SELECT more FROM pillarbox.maintain_clock(2)") is False
    put_back(factory, *rows)
    while factory.one("SELECT more FROM pillarbox.maintain_clock(2)"):
        pass
    assert all(due(factory, row) <= timedelta() for row in rows)


def test_a_call_that_is_undone_is_made_again(factory: Factory, database: str) -> None:
    rows = factory.rows(4)
    put_back(factory, *rows)
    with psycopg.connect(database) as session:
        session.execute("SELECT pillarbox.maintain_clock(2)")
        session.rollback()
    while factory.one("SELECT more FROM pillarbox.maintain_clock(2)"):
        pass
    assert all(due(factory, row) <= timedelta() for row in rows)


async def test_what_another_session_has_locked_delays_nothing(
    factory: Factory, connection: db.Connection, database: str
) -> None:
    locked, free = factory.rows(2)
    put_back(factory, locked, free)
    with psycopg.connect(database) as operator:
        operator.execute("SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE", (locked,))
        assert await one_round(connection)
        assert due(factory, free) <= timedelta()


async def test_notices_that_were_owed_are_owed_now(factory: Factory, connection: db.Connection) -> None:
    message = factory.message()
    factory.sql(
        """INSERT INTO pillarbox.notices
               (ts, due, kind, messages__id, queue__id, senderlocalpart, senderdomain, recipientlocalpart,
                recipientdomain, arrived)
           SELECT now() + written, now() + due, 'failed', %(message)s, id, 'a', 'a.example', 'b', 'b.example', now()
             FROM (VALUES (1, interval '2 hours', interval '3 hours'), (2, interval '-1 hour', interval '1 hour'))
               AS n(id, written, due)""",
        message=message,
    )
    put_back(factory)

    assert await one_round(connection)

    waiting = factory.sql("SELECT due > now() AS waiting FROM pillarbox.notices ORDER BY queue__id")
    assert [row.waiting for row in waiting] == [False, True]


def test_what_was_seen_in_the_future_does_not_count_as_alive(factory: Factory) -> None:
    factory.sql(
        """INSERT INTO pillarbox.workers (worker, id, host, pid, where_condition, started, seen, beat, lease, poll)
           SELECT 'w' || hours, 'w', 'h', 1, 'true', now(), now() + make_interval(hours => hours), '10 s', '15 m', '5 s'
             FROM unnest(ARRAY[0, 2]) AS hours"""
    )
    factory.sql(
        """INSERT INTO pillarbox.volumes (host, path, free, size, seen, beat)
           SELECT 'h' || hours, '/', 1, 1, now() + make_interval(hours => hours), '10 s'
             FROM unnest(ARRAY[0, 2]) AS hours"""
    )
    alive = factory.sql("SELECT worker, live FROM pillarbox.workers_seen ORDER BY worker")
    assert [(row.worker, row.live) for row in alive] == [("w0", True), ("w2", False)]
    fresh = factory.sql("SELECT host, fresh FROM pillarbox.volumes_seen ORDER BY host")
    assert [(row.host, row.fresh) for row in fresh] == [("h0", True), ("h2", False)]
