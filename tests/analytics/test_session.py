"""test-session — a local Spark has the lowest priority on a machine that it shares with mail

Owns: proofs about scripts/analytics/session.py and workers.py that change the process they run in, which is why they
    start one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

#: Seconds: beside four busy tests it gets a twentieth of a processor. conftest.py runs this file last.
_LIMIT = 900

_WORKER = """
import json, os
import pyarrow as pa
from scripts.analytics import session
def look():
    return [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)]
def workers(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"at": look()}] * batch.num_rows)
with session.started(small=True) as spark:
    [worker] = spark.range(1).mapInArrow(workers, "at array<bigint>").collect()
    print(json.dumps([worker.at, look(), spark._jvm.System.getProperty("java.io.tmpdir")]))
"""


def test_spark_and_its_workers_run_after_mail_and_unpack_into_tmpdir(tmp_path: Path) -> None:
    folder = tmp_path / "of Java"
    folder.mkdir()
    environ = os.environ | {"TMPDIR": str(folder)}
    words = (sys.executable, "-c", _WORKER)
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_LIMIT, env=environ)
    assert ran.returncode == 0, ran.stderr
    after_mail = [max(10, os.getpriority(os.PRIO_PROCESS, 0)), os.SCHED_IDLE]
    assert json.loads(ran.stdout.splitlines()[-1]) == [after_mail, after_mail, str(folder)]


def test_an_export_runs_after_mail() -> None:
    code = "import os; from scripts.analytics import workers\nwith workers.started(1): print(os.sched_getscheduler(0))"
    ran = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True, timeout=60)
    assert int(ran.stdout) == os.SCHED_IDLE
