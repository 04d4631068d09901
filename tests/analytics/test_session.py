"""test-session — a local Spark has the lowest priority on a machine that it shares with mail

Owns: proofs about scripts/analytics/session.py that need a Spark of its own, which is why they start a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

_WORKER = """
import json, os
import pyarrow as pa
from scripts.analytics import session
def look():
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
def workers(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pylist([dict(zip(("class", "nice"), look()))] * batch.num_rows)
with session.started() as spark:
    [worker] = spark.range(1).mapInArrow(workers, "class bigint, nice bigint").collect()
    print(json.dumps([list(worker), look()]))
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="a scheduling class of Linux")
def test_spark_workers_run_at_idle_priority() -> None:
    ran = subprocess.run((sys.executable, "-c", _WORKER), capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stderr
    worker, here = json.loads(ran.stdout.splitlines()[-1])
    nice = max(10, os.getpriority(os.PRIO_PROCESS, 0))
    assert worker == [os.SCHED_IDLE, nice]
    assert here == [os.sched_getscheduler(0), nice]
