"""test-stream — figures by minute count each attempt once, despite late commits and repeated reads"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from queue import Queue
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from scripts.analytics import stream
from scripts.analytics.source.stream_source import AttemptsReader

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.database.factory import Factory

pytestmark = pytest.mark.slow

_INSERT = b"""
INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, transportid, recipientdomain,
                                size, outcome, scope, duration)
SELECT %(ts)s, n, gen_random_uuid(), 1, 1, 'w@h:1', 'default', 'example.com', 1, %(outcome)s, 'recipient', '2 s'
  FROM generate_series(1, %(count)s) AS n
"""
_PATIENCE = 240.0


def _reaches(seen: Queue[list[dict[str, Any]]], wanted: dict[str, tuple[int, float]]) -> dict[str, tuple[int, float]]:
    """Waits until the figures of all outcomes are these; fails on one that is beyond."""
    now: dict[str, tuple[int, float]] = {}
    while now != wanted:
        now |= {row["outcome"]: (row["attempts"], row["seconds"]) for row in seen.get(timeout=_PATIENCE)}
        assert all(found <= wanted[outcome] for outcome, found in now.items()), now
    return now


def test_an_attempt_committed_late_and_read_twice_is_counted_once(
    spark: SparkSession, factory: Factory, tmp_path: Path
) -> None:
    minute = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=2)
    seen: Queue[list[dict[str, Any]]] = Queue()

    def insert(connection: psycopg.Connection, outcome: str, count: int) -> None:
        connection.execute(_INSERT, {"ts": minute + timedelta(seconds=7), "outcome": outcome, "count": count})

    with psycopg.connect(factory.uri) as late, psycopg.connect(factory.uri, autocommit=True) as other:
        insert(late, "deferred", 2)  # the lower ids, not committed yet
        insert(other, "delivered", 3)
        query = stream.start(spark, factory.uri, minute, seen.put, tmp_path / "checkpoint", every=1, reread=2)
        try:
            _reaches(seen, {"delivered": (3, 6.0)})
            late.commit()  # nothing newer comes, and they are found all the same
            _reaches(seen, {"deferred": (2, 4.0)})
            insert(other, "delivered", 1)  # with it everything below is read again
            _reaches(seen, {"delivered": (4, 8.0)})
        finally:
            query.stop()


def test_a_figure_written_again_replaces_the_old_one(factory: Factory) -> None:
    figure = {"minute": "2026-03-02T10:00:00+00:00", "outcome": "delivered", "attempts": 3, "seconds": 1.5}
    write = stream.stored(factory.uri)
    write([figure, figure | {"outcome": "failed"}])
    write([figure | {"attempts": 5}])
    rows = factory.sql("SELECT outcome, attempts, seconds FROM pillarbox.report_minutes ORDER BY outcome")
    assert [tuple(row) for row in rows] == [("delivered", 5, 1.5), ("failed", 3, 1.5)]


def test_reused_ids_are_read_after_a_failover(factory: Factory) -> None:
    """A checkpoint outlives the server; its newest id says nothing about another timeline's."""
    minute = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=2)
    reader = AttemptsReader(factory.uri, minute, overlap=2, reread=10)
    with psycopg.connect(factory.uri, autocommit=True) as session:
        session.execute(_INSERT, {"ts": minute, "outcome": "delivered", "count": 9})
        before = reader.latestOffset(reader.initialOffset())
        assert before["after"] == 9
        assert str(before["timeline"]).endswith("/00000001")
        session.execute("DELETE FROM pillarbox.attempts WHERE id > 3")
        session.execute("SELECT setval('pillarbox.attempts_id_seq', 3)")
        session.execute(_INSERT, {"ts": minute, "outcome": "failed", "count": 2})
    elsewhere = before | {"timeline": "7/00000001"}  # as it is known where this server took over from
    after = reader.latestOffset(elsewhere)
    assert after["after"] == 5
    [portion] = reader.partitions(elsewhere, after)
    assert sorted((row[0], row[3]) for row in reader.read(portion)) == [
        *((n, "delivered") for n in (1, 2, 3)),
        *((n, "failed") for n in (4, 5)),
    ]
    [portion] = reader.partitions(before, reader.latestOffset(before))  # the same server: a little is read again
    assert portion.value == (7, 9)
