"""test-stream-killed — figures by the minute are PostgreSQL's own counts, although the driver was killed at any step

Guarantees: the kill is SIGKILL, from inside, of Python and Java together, at the named step of a real stream with a
    checkpoint; then the stream goes on from its checkpoint, in the session of the tests. Every figure is compared.
    The two steps on both sides of the sink's COMMIT always run, all of them by `make chaos-mutants`.
See: sql/README.md, "Figures by the minute".
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from scripts.analytics import stream
from scripts.analytics.java_runtime import JAVA_HOME
from tests.fixtures.analytics.spark import quick_commands

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.postgres import ServerUnderTest

pytestmark = pytest.mark.slow

#: A driver that kills itself and its Java when it comes to a step.
_PROGRAM: Final = """
import os, signal, sys, threading, time
from pathlib import Path
import psycopg
from pyspark.errors import StreamingQueryException
from scripts.analytics import priority, session, stream

priority.lower = priority.only_in_idle_time = lambda: None  # nothing here is to give way
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
            " AND datname = current_database()"
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
    if wanted == "committed":
        when(lambda: list(checkpoint.glob("*/spark/commits/0")))
    while True:
        query = stream.start(spark, uri, stream.stored(uri, at), checkpoint, every=1, at=at)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:  # Spark gives its Python ten seconds to start
            if "connect back" not in str(error):
                raise
"""
_STEPS: Final = (
    ("count", "read", "store", "commit", "stored", "committed")
    if os.environ.get("PILLARBOX_CHAOS") == "all"
    else ("commit", "stored")
)
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


def test_a_stream_killed_at_any_step_counts_each_attempt_once(
    spark: SparkSession,
    server: ServerUnderTest,
    template_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"JAVA_HOME": str(JAVA_HOME), **quick_commands(tmp_path / "conf")}.items():
        monkeypatch.setenv(name, value)
    now = datetime.now(UTC).replace(second=7, microsecond=0) - timedelta(minutes=4)

    def insert(connection: psycopg.Connection[Any], ago: int, count: int, worker: str = "w") -> None:
        connection.execute(_INSERT, {"ts": now - timedelta(minutes=ago), "count": count, "worker": worker})

    with ExitStack() as stack:
        uris = {step: stack.enter_context(server.fresh_database(template=template_database)) for step in _STEPS}
        late = {step: stack.enter_context(psycopg.connect(uri)) for step, uri in uris.items()}
        other = {step: stack.enter_context(psycopg.connect(uri, autocommit=True)) for step, uri in uris.items()}
        for step in _STEPS:
            # A figure of an earlier stream, from which this one begins an hour ago; it is wrong, and counted again.
            minute = (now - timedelta(minutes=40)).replace(second=0)
            other[step].execute(b"INSERT INTO pillarbox.report_minutes VALUES (%s, 'failed', 5, 5)", (minute,))
            insert(late[step], 3, 11)  # lower ids than all that follow, committed after them
            insert(other[step], 30, 100)
            insert(other[step], 0, 25_000)

        def killed(step: str) -> int:
            words = [sys.executable, "-c", _PROGRAM, uris[step], str(tmp_path / step), step]
            return subprocess.run(words, start_new_session=True, timeout=_PATIENCE, check=False).returncode

        with ThreadPoolExecutor(2) as pool:
            assert dict(zip(_STEPS, pool.map(killed, _STEPS), strict=True)) == dict.fromkeys(_STEPS, -signal.SIGKILL)
        for step, uri in uris.items():
            insert(other[step], 0, 10)
            insert(other[step], 4, 20)  # late, within the watermark
            late[step].commit()
            query = stream.start(spark, uri, stream.stored(uri), tmp_path / step, every=1)
            query.processAllAvailable()
            insert(other[step], 30, 50, "beyond")  # later than the watermark, into minutes that are final
            query.processAllAvailable()
            query.stop()
            assert other[step].execute(_FIGURES).fetchall() == other[step].execute(_COUNTED).fetchall(), step
            counted = other[step].execute(b"SELECT sum(attempts) FROM pillarbox.report_minutes").fetchone()
            assert counted == (25_141,), step
