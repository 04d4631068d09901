"""test_size — the cost of a round of maintenance does not grow with the queue or the history

Owns: proofs about how many rows maintain_sweep, maintain_hold_poison and maintain_renotify read, by the plans that
    their own sessions keep; and about the time of a round.
See: sql/schema/15_maintenance.sql; queued/maintain.py.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from queued import maintain
from queued.maintain import Maintainer
from shared.config.queued.settings import Maintenance
from shared.postgres import database as db
from tests.fixtures.heard import until

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

HOUR = timedelta(hours=1)
#: A month of history, with so many recipients; one in fifty is a dead letter.
_ARCHIVE = """
INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart,
                               recipientdomain, size, transportid, priority, retry_count)
SELECT n, gen_random_uuid(), 1, now() - n * (interval '29 days' / %(rows)s::integer),
       CASE WHEN n %% 50 = 0 THEN 'failed' ELSE 'success' END, now(), 'r', 'example.com', 1, 'default', 0, 1
  FROM generate_series(1, %(rows)s::integer) AS n
"""
_BODIES = """
WITH body AS (
    INSERT INTO pillarbox.messages (id, size, content)
    SELECT gen_random_uuid(), 0, '' FROM generate_series(1, %(count)s::integer) RETURNING id)
INSERT INTO pillarbox.released SELECT id, now() - interval '1 hour' FROM body
"""
_QUEUE = """
INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain, metadata, next_retry, priority,
                             last_error)
SELECT %(message)s, 'r', 'example.com', jsonb_build_object('_partid', %(partid)s::text), now() + %(due)s::interval,
       n %% 3 - 1, CASE WHEN n %% 2 = 0 THEN '451 Later' END
  FROM generate_series(1, %(rows)s::integer) AS n
"""
_READ = """
SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::bigint AS rows
  FROM pg_stat_xact_user_tables WHERE relname ~ %(tables)s
"""


def history(factory: Factory, rows: int) -> None:
    factory.sql("SELECT pillarbox.history_create(now() - interval '29 days', 29)")
    factory.sql("ALTER TABLE pillarbox.archive DISABLE TRIGGER archive_died")
    factory.sql(_ARCHIVE, rows=rows)
    factory.sql("ALTER TABLE pillarbox.archive ENABLE TRIGGER archive_died")


def reads(factory: Factory, call: str, tables: str, **values: Any) -> int:
    """The number of rows of these tables that the call reads, deleted ones included."""
    with factory.another() as session:
        session.execute(call.encode(), values)
        [read] = session.execute(_READ, {"tables": tables}).fetchone() or [0]
        session.rollback()
    return int(read)


@pytest.mark.parametrize(
    ("rows", "analyzed"), [(100_000, False), (100_000, True), pytest.param(500_000, True, marks=pytest.mark.slow)]
)
def test_the_sweep_reads_only_the_dead_letters_of_its_bodies(factory: Factory, rows: int, *, analyzed: bool) -> None:
    history(factory, rows)
    bodies = 200
    factory.sql(_BODIES, count=bodies)
    if analyzed:
        factory.sql("ANALYZE pillarbox.archive, pillarbox.messages, pillarbox.released")
    # One body has a dead letter, and another recipient.
    factory.sql(
        """UPDATE pillarbox.archive SET messages__id = (SELECT min(messages__id::text)::uuid FROM pillarbox.released)
            WHERE id IN (50, 51)"""
    )
    sweep = "SELECT pillarbox.maintain_sweep(now(), '10m', '90 days', 1000)"
    assert reads(factory, sweep, "^archive_") <= bodies
    assert reads(factory, sweep, "^(messages|released|queue_.*|notices)$") <= 8 * bodies
    assert factory.one(sweep) == bodies
    assert len(factory.bodies()) == 1


@pytest.mark.parametrize(
    "call",
    ["SELECT pillarbox.maintain_hold_poison(now(), 3, 1000)", "SELECT pillarbox.maintain_renotify(now(), '1m', 100)"],
)
@pytest.mark.parametrize("analyzed", [False, True])
def test_only_the_wanted_rows_of_the_queue_are_read(factory: Factory, call: str, *, analyzed: bool) -> None:
    message = factory.message()
    factory.sql(_QUEUE, message=message, partid="1", due="1 hour", rows=30_000)
    factory.sql(_QUEUE, message=message, partid="4", due="-1 hour", rows=30_000)
    if analyzed:
        factory.sql("ANALYZE pillarbox.queue")
    assert reads(factory, call, "^queue_") <= 600


@pytest.mark.parametrize("analyzed", [False, True])
def test_after_the_clock_was_put_back_a_call_reads_the_rows_it_looks_at(factory: Factory, *, analyzed: bool) -> None:
    factory.sql(_QUEUE, message=factory.message(), partid="1", due="1 hour", rows=30_000)
    factory.sql("UPDATE pillarbox.locks SET until = now() + interval '2 hours' WHERE name = 'clock'")
    if analyzed:
        factory.sql("ANALYZE pillarbox.queue")
    assert reads(factory, "SELECT pillarbox.maintain_clock(now(), 100)", "^queue_") <= 300


#: A table with much to remove, the call that removes a batch of it, and the tables it may read.
_REMOVED = [
    (
        """INSERT INTO pillarbox.idempotency (application, key, messages__id, ts)
           SELECT 'app', n::text, gen_random_uuid(), now() - interval '30 days' FROM generate_series(1, 30000) AS n""",
        "maintain_forget_keys(now(), '8 days', 50)",
        "idempotency",
    ),
    (
        """INSERT INTO pillarbox.notices (kind, messages__id, queue__id, senderlocalpart, senderdomain,
                                          recipientlocalpart, recipientdomain, arrived, refused)
           SELECT 'failed', gen_random_uuid(), n, 's', 'a.example', 'r', 'b.example', now(), now() - interval '99 days'
             FROM generate_series(1, 30000) AS n""",
        "maintain_forget_notices(now(), '30 days', 50)",
        "notices",
    ),
    (
        """INSERT INTO pillarbox.suppressions (target, reason, source, expires)
           SELECT n || '@a.example', 'r', 'operator', now() - interval '1 day' FROM generate_series(1, 30000) AS n""",
        "maintain_forget_notices(now(), '30 days', 50)",
        "suppressions",
    ),
    (
        """INSERT INTO pillarbox.notice_counts (hour, sender, notices)
           SELECT now() - interval '9 days', n::text, 1 FROM generate_series(1, 30000) AS n""",
        "maintain_forget_notices(now(), '30 days', 50)",
        "notice_counts",
    ),
    (
        """INSERT INTO pillarbox.report_minutes (minute, outcome, attempts, seconds)
           SELECT now() - interval '99 days' + n * interval '1 minute', 'delivered', 1, 1
             FROM generate_series(1, 30000) AS n""",
        "maintain_forget_notices(now(), '30 days', 50)",
        "report_minutes",
    ),
    (
        """WITH body AS (INSERT INTO pillarbox.messages (id, size, content) VALUES (gen_random_uuid(), 0, '')
                         RETURNING id),
                row AS (INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain, metadata)
                        SELECT body.id, 'r', 'example.com', '{"_partid": "1"}' FROM body, generate_series(1, 30000)
                        RETURNING id)
           SELECT count(*) FROM row;
           UPDATE pillarbox.queue SET status = 'DELETE'""",
        "maintain_finish(now(), 'worker', 50)",
        "queue_.*",
    ),
]


@pytest.mark.parametrize("emptied", [False, True], ids=["", "emptied before"])
@pytest.mark.parametrize(("fill", "call", "tables"), _REMOVED, ids=[tables for _, _, tables in _REMOVED])
def test_removing_a_batch_reads_only_its_rows(
    factory: Factory, fill: str, call: str, tables: str, *, emptied: bool
) -> None:
    """Also where statistics know how much there is, so that a join would read all of it for each batch, and where they
    say that the table has pages without rows, so that any index seems as good as another.
    """
    for leaf in ("queue_def_123", "messages", "released"):
        factory.on(leaf, "ALTER TABLE {table} SET (autovacuum_enabled = off)")
    for statement in fill.split(";"):
        factory.sql(statement)
    if emptied:
        factory.on("queue" if tables == "queue_.*" else tables, "DELETE FROM {table}")
    factory.sql("ANALYZE")
    if emptied:
        for statement in fill.split(";"):
            factory.sql(statement)
    assert reads(factory, f"SELECT pillarbox.{call}", f"^({tables})$") <= 250


async def test_a_round_ends_at_its_time_limit_and_leaves_the_rest_to_the_next(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletions by operators are finished in every round, beside any backlog of the sweep."""
    monkeypatch.setattr(maintain, "_ROUND", 0.8)
    monkeypatch.setattr(maintain, "_BATCH", 5)  # so slow that no machine is done in three rounds
    factory.sql(_BODIES, count=40_000)
    maintainer = Maintainer("worker", Maintenance())
    connection = await db.connect(factory.uri, "maintainer")
    try:
        for whole in (True, False, False):
            deleted = factory.row(status="DELETE")
            assert await maintainer.round_if_elected(connection, whole=whole)
            assert maintainer.more
            assert deleted in {row.id for row in factory.archive()}
    finally:
        await connection.close()
    assert 0 < factory.one("SELECT count(*) FROM pillarbox.released") < 40_000
    assert heard.all("maintain.swept")


async def test_rounds_follow_at_once_until_the_work_is_done(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "_ROUND", 0.3)
    monkeypatch.setattr(maintain, "_BATCH", 2)  # so slow that no machine is done in one round
    factory.sql(_BODIES, count=3_000)
    pool = await db.open_pool(factory.uri, "maintainer", 1)
    running = asyncio.create_task(maintain.run(pool, "worker", Maintenance.model_validate({"interval": "1h"})))
    try:
        await until(lambda: factory.one("SELECT count(*) FROM pillarbox.released") == 0, "all bodies to be swept")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await pool.close()
    assert len(heard.all("maintain.swept")) > 1
    assert len(heard.all("maintain.days")) <= 1  # work done once an interval is not repeated


async def test_a_call_that_takes_too_long_is_ended_and_the_next_batch_is_smaller(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "_ROUND", 3.0)
    factory.sql(_BODIES, count=100)
    arguments = "timestamptz, interval, interval, integer, timestamptz"
    factory.sql(f"ALTER FUNCTION pillarbox.maintain_sweep_since({arguments}) RENAME TO swift")
    factory.sql(
        """CREATE FUNCTION pillarbox.maintain_sweep_since(
               a timestamptz, b interval, c interval, d integer, e timestamptz,
               OUT looked integer, OUT swept integer, OUT reached timestamptz) LANGUAGE plpgsql AS $$
           BEGIN
               PERFORM pg_sleep(d * 0.05);
               SELECT * INTO looked, swept, reached FROM pillarbox.swift(a, b, c, d, e);
           END $$"""
    )
    maintainer = Maintainer("worker", Maintenance())
    connection = await db.connect(factory.uri, "maintainer")
    try:
        started = monotonic()
        await maintainer.round_if_elected(connection)
        assert monotonic() - started < 30, "the call sleeps for 50 s"
        assert [failed["step"] for failed in heard.all("maintain.failed")] == ["sweep"]
        assert maintainer.more
        for _ in range(20):
            await maintainer.round_if_elected(connection, whole=False)
    finally:
        await connection.close()
    assert factory.bodies() == {}
    assert len(heard.all("maintain.failed")) == 1


def test_large_bodies_are_deleted_in_small_batches(factory: Factory) -> None:
    """To delete one costs as much as it is long."""
    factory.sql(_BODIES, count=10)
    factory.sql("UPDATE pillarbox.messages SET size = 25 * 1024 * 1024")
    assert factory.one("SELECT pillarbox.maintain_sweep(now(), '10m', '7d', 1000)") == 3
    factory.sql("UPDATE pillarbox.messages SET size = 1024 * 1024 * 1024")
    assert factory.one("SELECT pillarbox.maintain_sweep(now(), '10m', '7d', 1000)") == 1


def test_a_sweep_continues_where_the_last_one_stopped(factory: Factory) -> None:
    """Notes left behind are found by a sweep that starts at the oldest one."""
    factory.sql(_BODIES, count=3)
    factory.sql(
        "UPDATE pillarbox.released SET ts = now() - n * interval '1 hour' FROM (SELECT messages__id AS id,"
        " row_number() OVER () AS n FROM pillarbox.released) o WHERE o.id = messages__id"
    )
    call = "SELECT looked, swept, reached FROM pillarbox.maintain_sweep_since(now(), '10m', '7d', {}, {})"
    [first] = factory.sql(call.format(1, "'-infinity'"))
    assert (first.looked, first.swept) == (1, 1)
    factory.sql(_BODIES, count=1)
    factory.sql(
        """UPDATE pillarbox.released SET ts = now() - interval '9 hours'
            WHERE messages__id = (SELECT id FROM pillarbox.messages ORDER BY ts DESC LIMIT 1)"""
    )
    rest = call.format(1000, "%(since)s")
    [more] = factory.sql(rest, since=first.reached)
    assert (more.looked, more.swept) == (2, 2)
    [none] = factory.sql(rest, since=more.reached)
    assert (none.looked, none.swept) == (0, 0)
    [whole] = factory.sql(call.format(1000, "'-infinity'"))
    assert (whole.looked, whole.swept) == (1, 1)


def test_under_an_old_snapshot_a_sweep_does_not_read_deleted_rows(factory: Factory) -> None:
    factory.sql("ALTER TABLE pillarbox.released SET (autovacuum_enabled = off)")
    factory.sql(_BODIES, count=20_000)
    with factory.another() as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT count(*) FROM pillarbox.settings")
        since = "-infinity"
        while True:
            [row] = factory.sql(
                "SELECT * FROM pillarbox.maintain_sweep_since(now(), '10m', '7d', 1000, %(since)s::timestamptz)",
                since=since,
            )
            since = row.reached
            if not row.looked:
                break
        explain = """EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)
                     SELECT * FROM pillarbox.maintain_sweep_since(now(), '10m', '7d', 1000, %(since)s::timestamptz)"""
        blocks = {}
        for begin in ("-infinity", since):
            [[[plan]]] = factory.sql(explain, since=begin)
            blocks[begin] = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    assert blocks[since] < 50 < blocks["-infinity"]


async def test_a_slow_search_for_overdue_mail_is_repeated_with_a_smaller_range(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As beside an old snapshot, in millions of index entries; earlier notes stay while their mail is queued."""
    monkeypatch.setattr(maintain, "_STEP", 1.5)
    old, gone = factory.row(partid="1", due=-HOUR), factory.row(partid="1", due=-HOUR)
    maintainer = Maintainer("worker", Maintenance())
    connection = await db.connect(factory.uri, "maintainer")
    noted = "SELECT queue__id FROM pillarbox.unserved ORDER BY 1"
    try:
        await maintainer.round_if_elected(connection)
        assert [row.queue__id for row in factory.sql(noted)] == [old, gone]
        factory.sql("ALTER FUNCTION pillarbox.maintain_overdue RENAME TO swift")
        factory.sql(
            """CREATE FUNCTION pillarbox.maintain_overdue(a timestamptz, b interval, c integer, d timestamptz, e text[])
               RETURNS TABLE (leaf text, id bigint, partid text, due timestamptz) LANGUAGE plpgsql AS $$
               BEGIN
                   IF d = '-infinity' THEN PERFORM pg_sleep(60); END IF;
                   RETURN QUERY SELECT * FROM pillarbox.swift(a, b, c, d, e);
               END $$"""
        )
        factory.sql("DELETE FROM pillarbox.queue WHERE id = %(id)s", id=gone)
        recent = factory.row(partid="4", due=-timedelta(minutes=2))
        await maintainer.round_if_elected(connection)
        assert {failed["step"] for failed in heard.all("maintain.failed")} == {"renotify", "unserved"}
        await maintainer.round_if_elected(connection)
    finally:
        await connection.close()
    assert len(heard.all("maintain.failed")) == 2
    assert heard.all("maintain.renotified")[-1] == {"partitions": 1}
    assert [row.queue__id for row in factory.sql(noted)] == [old, recent]


async def test_partitions_of_many_days_are_created_over_several_rounds(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year of them takes longer than any step may, and was made in one transaction that PostgreSQL ended."""
    maintainer = Maintainer("worker", Maintenance.model_validate({"ahead": 90}))
    step, made = 0.2, [0]
    last = """SELECT to_regclass('pillarbox.archive_'
                     || to_char((now() + interval '90 days') AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL"""
    connection = await db.connect(factory.uri, "maintainer")
    try:
        for _ in range(200):
            monkeypatch.setattr(maintain, "_STEP", step)
            await maintainer.round_if_elected(connection, whole=not maintainer.more)
            made.append(factory.one("SELECT count(*) FROM pg_inherits WHERE inhparent = 'pillarbox.archive'::regclass"))
            if factory.one(last):
                break
            if made[-1] == made[-2]:
                step *= 2  # this machine does not make a single day in that time
    finally:
        await connection.close()
    assert factory.one(last)
    assert len(set(made)) > 2, "each round keeps what it made"


async def test_a_call_that_is_slow_once_for_each_connection_is_finished(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with 1,000 leaves, which PostgreSQL reads from its catalog for the first call."""
    monkeypatch.setattr(maintain, "_STEP", 0.4)
    row = factory.row(status="DELETE", partid="1")
    factory.sql("ALTER FUNCTION pillarbox.maintain_finish(text, integer) RENAME TO swift")
    factory.sql(
        """CREATE FUNCTION pillarbox.maintain_finish(who text, batch integer)
           RETURNS TABLE (result text, recipients bigint) LANGUAGE plpgsql AS $$
           BEGIN
               IF coalesce(current_setting('test.read', true), '') = '' THEN
                   PERFORM pg_sleep(1.5), set_config('test.read', 'yes', false);
               END IF;
               RETURN QUERY SELECT * FROM pillarbox.swift(who, batch);
           END $$"""
    )
    connection = await db.connect(factory.uri, "maintainer")
    try:
        await Maintainer("worker", Maintenance()).round_if_elected(connection)
    finally:
        await connection.close()
    assert not heard.all("maintain.failed")
    assert [each.id for each in factory.sql("SELECT id FROM pillarbox.archive WHERE result = 'deleted'")] == [row]
