"""test-stream — each attempt is in one batch, late commits too; a batch that comes again changes nothing"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from queue import Queue
from typing import TYPE_CHECKING

import psycopg
import pytest

from scripts.analytics import stream
from scripts.analytics.source.stream_source import AttemptsReader
from shared.errors import PillarboxError

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


def _minute() -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=2)


def _insert(connection: psycopg.Connection, minute: datetime, outcome: str, count: int) -> None:
    connection.execute(_INSERT, {"ts": minute + timedelta(seconds=7), "outcome": outcome, "count": count})


def _reaches(seen: Queue[stream.Batch], wanted: dict[str, tuple[int, float]]) -> None:
    """Waits until the figures of all outcomes are these; fails on one that is beyond."""
    now: dict[str, tuple[int, float]] = {}
    while now != wanted:
        figures = seen.get(timeout=_PATIENCE).figures
        now |= {row["outcome"]: (row["attempts"], row["seconds"]) for row in figures}
        assert all(found <= wanted[outcome] for outcome, found in now.items()), now


def test_an_attempt_committed_late_is_counted_once(spark: SparkSession, factory: Factory, tmp_path: Path) -> None:
    minute = _minute()
    seen: Queue[stream.Batch] = Queue()
    with psycopg.connect(factory.uri) as late, psycopg.connect(factory.uri, autocommit=True) as other:
        _insert(late, minute, "deferred", 2)  # the lower ids, not committed yet
        _insert(other, minute, "delivered", 3)
        query = stream.start(spark, factory.uri, seen.put, tmp_path / "checkpoint", every=1)
        try:
            _reaches(seen, {"delivered": (3, 6.0)})
            late.commit()
            _reaches(seen, {"deferred": (2, 4.0)})
            _insert(other, minute, "delivered", 1)
            _reaches(seen, {"delivered": (4, 8.0)})
        finally:
            query.stop()


def test_each_attempt_is_between_two_snapshots_and_nothing_new_is_no_batch(factory: Factory) -> None:
    minute = _minute()
    reader = AttemptsReader(factory.uri, minute)

    def between(start: dict[str, str], end: dict[str, str]) -> int:
        [portion] = reader.partitions(start, end)
        return sum(batch.num_rows for batch in reader.read(portion))

    with psycopg.connect(factory.uri) as late, psycopg.connect(factory.uri, autocommit=True) as other:
        offsets = [reader.initialOffset()]
        _insert(late, minute, "deferred", 2)
        _insert(other, minute, "delivered", 3)
        _insert(other, minute - timedelta(minutes=1), "delivered", 5)  # before the stream began
        offsets.append(reader.latestOffset(offsets[-1]))
        other.execute(b"CREATE TABLE other_work (n integer)")
        assert reader.latestOffset(offsets[-1]) == offsets[-1]
        late.commit()
        offsets.append(reader.latestOffset(offsets[-1]))
        assert [between(*each) for each in pairwise(offsets)] == [3, 2]
        assert between(offsets[0], offsets[1]) == 3  # again the same, whatever was committed since
        assert between(offsets[0], offsets[2]) == 5


def test_another_server_ends_the_stream(factory: Factory) -> None:
    reader = AttemptsReader(factory.uri, _minute(), timeline="7/00000001")
    with pytest.raises(PillarboxError, match="follows 7/00000001; start the stream again"):
        reader.latestOffset(reader.initialOffset())


def test_a_batch_that_comes_again_changes_nothing_and_one_before_it_is_refused(factory: Factory) -> None:
    minute = datetime(2026, 3, 2, 10, tzinfo=UTC)
    figure = {"minute": minute.isoformat(), "outcome": "delivered", "attempts": 3, "seconds": 1.5}
    one, other = "01a208cb-b0c8-71f0-b3f8-1a42a9882dd1", "01a208cb-b0c8-71f0-b3f8-1a42a9882dd2"
    write = stream.stored(factory.uri)

    def figures() -> list[tuple[object, ...]]:
        rows = factory.sql("SELECT outcome, attempts, seconds FROM pillarbox.report_minutes ORDER BY outcome")
        return [tuple(row) for row in rows]

    write(stream.Batch(one, 0, minute, [figure, figure | {"outcome": "failed"}]))
    write(stream.Batch(one, 2, minute, [figure | {"attempts": 5}]))
    for _ in range(2):
        write(stream.Batch(one, 2, minute, [figure | {"attempts": 6}]))
    assert figures() == [("delivered", 5, 1.5), ("failed", 3, 1.5)]
    with pytest.raises(PillarboxError, match="comes after later ones"):
        write(stream.Batch(one, 1, minute, [figure | {"attempts": 7}]))
    # A new stream counts again from its first minute on, and leaves the minutes before.
    write(stream.Batch(other, 0, minute + timedelta(minutes=1), []))
    assert len(figures()) == 2
    write(stream.Batch(one, 3, minute, [figure | {"attempts": 8}]))
    write(stream.Batch("01a208cb-b0c8-71f0-b3f8-1a42a9882dd3", 0, minute, [figure]))
    assert figures() == [("delivered", 3, 1.5)]


def test_a_stream_keeps_the_minute_that_it_began_with(tmp_path: Path) -> None:
    assert stream._began(tmp_path / "new", _minute()) == _minute()
    assert stream._began(tmp_path / "new", _minute() + timedelta(minutes=5)) == _minute()
    kept = tmp_path / "new" / "since"
    kept.write_text("2026-11-28")
    assert stream._began(tmp_path / "new", _minute()).utcoffset() == timedelta(0)
    for damaged in (b"", b"2026-11-28T1", b"\xb6"):
        kept.write_bytes(damaged)
        with pytest.raises(PillarboxError, match=f"--checkpoint: {kept} cannot be read: "):
            stream._began(tmp_path / "new", _minute())
