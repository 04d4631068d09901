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
from scripts.analytics import session
def look(_):
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
with session.started(light=True) as spark:
    [worker] = spark.sparkContext.parallelize([0], 1).map(look).collect()
    print(json.dumps([worker, look(0)]))
"""


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="a scheduling class of Linux")
def test_spark_workers_run_at_idle_priority() -> None:
    ran = subprocess.run((sys.executable, "-c", _WORKER), capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stderr
    worker, here = json.loads(ran.stdout.splitlines()[-1])
    nice = max(10, os.getpriority(os.PRIO_PROCESS, 0))
    assert worker == [os.SCHED_IDLE, nice]
    assert here == [os.sched_getscheduler(0), nice]
