"""test-session — a local Spark has the lowest priority on a machine that it shares with mail

Owns: proofs about scripts/analytics/session.py that need a Spark of its own, which is why they start a process.
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

_WORKER = """
import json, os
import pyarrow as pa
from scripts.analytics import session
def look():
    return os.getpriority(os.PRIO_PROCESS, 0)
def workers(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"nice": look()}] * batch.num_rows)
with session.started(small=True) as spark:
    [worker] = spark.range(1).mapInArrow(workers, "nice bigint").collect()
    print(json.dumps([worker.nice, look(), spark._jvm.System.getProperty("java.io.tmpdir")]))
"""


def test_spark_and_its_workers_run_after_mail_and_unpack_into_tmpdir(tmp_path: Path) -> None:
    folder = tmp_path / "of Java"
    folder.mkdir()
    environ = os.environ | {"TMPDIR": str(folder)}
    words = (sys.executable, "-c", _WORKER)
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, env=environ)
    assert ran.returncode == 0, ran.stderr
    nice = max(10, os.getpriority(os.PRIO_PROCESS, 0))
    assert json.loads(ran.stdout.splitlines()[-1]) == [nice, nice, str(folder)]
