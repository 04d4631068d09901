"""test-stream-killed — figures by the minute are PostgreSQL's own counts, although the driver is killed at every step

Guarantees: the kill is SIGKILL, from inside, of Python and Java together, at the named step of a real stream with a
    checkpoint; then the stream is started again. Every figure is compared. See sql/README.md, "Figures by the minute".
"""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from scripts.analytics.java_runtime import JAVA_HOME
from tests.fixtures.database.spark import quick_commands

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

pytestmark = pytest.mark.slow

#: A driver that kills itself and its Java when it comes to a step; without a step it counts what is there, and ends.
_PROGRAM: Final = """
import os, signal, sys, threading, time
from pathlib import Path
import psycopg
from scripts.analytics import priority, session, stream

priority.lower = priority.leave_a_core = lambda: None  # nothing here is to give way
uri, checkpoint, wanted = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
held = psycopg.connect(uri)

def die():
    os.killpg(0, signal.SIGKILL)

def when(condition):
    def watch():
        while not condition():
            time.sleep(0.01)
        die()
    threading.Thread(target=watch, daemon=True).start()

def waits():
    with psycopg.connect(uri, autocommit=True) as session:
        return session.execute(
            "SELECT FROM pg_stat_activity WHERE application_name = 'pillarbox analytics' AND wait_event_type = 'Lock'"
        ).fetchone() is not None

def at(step):
    if step == wanted:
        die()
    if step == "count" and wanted == "read":
        leaves = "FROM pg_inherits WHERE inhparent = 'pillarbox.attempts'::regclass"
        [newest] = held.execute(f"SELECT max(inhrelid::regclass::text) {leaves}").fetchone()  # of a day to come
        held.execute(f"LOCK TABLE {newest} IN ACCESS EXCLUSIVE MODE")
        when(waits)

with session.started("local[1]") as spark:
    before = set(checkpoint.glob("*/spark/commits/*"))
    if wanted == "committed":
        when(lambda: set(checkpoint.glob("*/spark/commits/*")) - before)
    query = stream.start(spark, uri, stream.stored(uri, at), checkpoint, every=1, at=at)
    try:
        if wanted != "nothing":
            query.awaitTermination()
        query.processAllAvailable()
    finally:
        print(query.exception(), file=sys.stderr, flush=True)
        query.stop()
"""
_STEPS: Final = ("count", "read", "store", "commit", "stored", "committed")
_INSERT: Final = b"""
INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, transportid, recipientdomain,
                                size, outcome, scope, duration)
SELECT %(ts)s + n %% 3 * interval '1 minute', n, gen_random_uuid(), 1, 1, %(worker)s, 'default', 'example.com', 1,
       CASE n %% 7 WHEN 0 THEN 'deferred' ELSE 'delivered' END, 'recipient', n %% 5 * interval '1 s'
  FROM generate_series(1, %(count)s) AS n
"""
_COUNTED: Final = b"""
SELECT date_trunc('minute', ts), outcome, count(*), sum(date_part('epoch', duration))
  FROM pillarbox.attempts WHERE worker <> 'beyond' GROUP BY 1, 2 ORDER BY 1, 2
"""
_FIGURES: Final = b"SELECT minute, outcome, attempts, seconds FROM pillarbox.report_minutes ORDER BY minute, outcome"
_PATIENCE: Final = 600.0


def test_a_stream_killed_at_every_step_counts_each_attempt_once(
    factory: Factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"JAVA_HOME": str(JAVA_HOME), **quick_commands(tmp_path / "conf")}.items():
        monkeypatch.setenv(name, value)
    now = datetime.now(UTC).replace(second=7, microsecond=0) - timedelta(minutes=4)

    def insert(connection: psycopg.Connection[Any], ago: int, count: int, worker: str = "w") -> None:
        connection.execute(_INSERT, {"ts": now - timedelta(minutes=ago), "count": count, "worker": worker})

    def run(step: str) -> int:
        words = [sys.executable, "-c", _PROGRAM, factory.uri, str(tmp_path / "checkpoint"), step]
        return subprocess.run(words, start_new_session=True, timeout=_PATIENCE, check=False).returncode

    with psycopg.connect(factory.uri) as late, psycopg.connect(factory.uri, autocommit=True) as other:
        # A figure of an earlier stream, from which this one begins an hour ago; it is wrong, and counted again.
        minute = (now - timedelta(minutes=40)).replace(second=0)
        other.execute(b"INSERT INTO pillarbox.report_minutes VALUES (%s, 'failed', 5, 5)", (minute,))
        insert(late, 3, 11)  # lower ids than all that follow, committed near the end
        insert(other, 30, 100)
        insert(other, 0, 25_000)
        for place, step in enumerate(_STEPS):
            assert run(step) == -signal.SIGKILL, step
            insert(other, 0, 10 + place)
            insert(other, 4, 20 + place)  # late, within the watermark
        late.commit()
        insert(other, 30, 50, "beyond")  # later than the watermark, into minutes that are final
        assert run("nothing") == 0
        assert other.execute(_FIGURES).fetchall() == other.execute(_COUNTED).fetchall()
        counted = other.execute(b"SELECT sum(attempts) FROM pillarbox.report_minutes").fetchone()
        assert counted == (25_111 + sum(30 + 2 * place for place in range(len(_STEPS))),)
