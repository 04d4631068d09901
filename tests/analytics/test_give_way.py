"""test-give-way — Spark's workers rest while mail flows, and at no other time; nobody is left stopped

Guarantees: that a worker rests is seen in the state the kernel has it in.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import pytest

from scripts.analytics import give_way
from tests.fixtures.lake import late

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not give_way.can_give_way(), reason="the list of a process's children is Linux's"),
]

_PATIENCE: Final = 60.0
#: As Spark has it: Java, PySpark's daemon, which it starts, and the worker that is forked from that.
_FAMILY: Final = """
import os, time
if not os.fork():
    if not os.fork():
        print(os.getpid(), flush=True)
        end = time.monotonic() + 120
        while time.monotonic() < end:
            pass
    else:
        os.wait()
    os._exit(0)
time.sleep(120)
"""
_SPARK: Final = """
import os, sys
from scripts.analytics import session
said = sys.argv[1]
def work(java):
    with open(said + ".draft", "w") as file:
        print(java, os.getppid(), os.getpid(), file=file)
    os.rename(said + ".draft", said)
    while True:
        pass
with session.started(light=True, beside="") as spark:
    spark.sparkContext.parallelize([spark.sparkContext._gateway.proc.pid], 1).map(work).collect()
"""


def state(pid: int) -> str:
    """The state of a process as proc_pid_stat(5) has it: T is stopped; "" when it is gone."""
    try:
        found = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "" if found == "Z" else found


def until(condition: Callable[[], object], what: str) -> None:
    deadline = monotonic() + _PATIENCE
    while not condition():
        assert monotonic() < deadline, f"waited for {what}"
        sleep(0.0005)


@contextmanager
def family() -> Iterator[tuple[int, int]]:
    """The eldest of three, and the youngest, who works without end."""
    with subprocess.Popen((sys.executable, "-c", _FAMILY), stdout=subprocess.PIPE, text=True) as eldest:
        assert eldest.stdout is not None
        worker = int(eldest.stdout.readline())
        try:
            yield eldest.pid, worker
        finally:
            eldest.kill()
            os.kill(worker, signal.SIGKILL)


def test_a_worker_rests_and_works_in_turns_and_works_afterwards() -> None:
    with family() as (eldest, worker):
        with give_way.giving_way(eldest, ""):
            for _ in range(3):
                until(lambda: state(worker) == "T", "the worker to rest")
                until(lambda: state(worker) == "R", "the worker to go on")
        assert state(worker) == "R"


def test_the_eldest_and_the_daemon_are_never_stopped() -> None:
    """Java's many threads would all have to wake up for it."""
    with family() as (eldest, worker), give_way.giving_way(eldest, ""):
        seen = set()
        for _ in range(20):
            until(lambda: state(worker) == "T", "the worker to rest")
            seen.add(state(eldest))
            until(lambda: state(worker) != "T", "the worker to go on")
        assert "T" not in seen


def test_mail_flows_while_attempts_are_recorded(history_database: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(give_way, "_ASK", 0.0)
        queue = give_way._Queue(history_database)
        assert not queue.flows()
        late(history_database, 0)
        until(queue.flows, "the attempt to be counted")
        until(lambda: not queue.flows(), "nothing new")


def test_who_cannot_be_asked_is_given_way_to() -> None:
    assert give_way._Queue("").flows()
    assert give_way._Queue("postgresql://127.0.0.1:1/nobody?connect_timeout=1").flows()


def test_a_killed_driver_leaves_no_stopped_worker(tmp_path: Path) -> None:
    """It is killed while it has the worker stopped; what it started has to end by itself."""
    said = tmp_path / "said"
    with subprocess.Popen((sys.executable, "-c", _SPARK, str(said))) as driver:
        started: list[int] = []
        try:
            until(said.exists, "the worker to begin")
            started = [int(word) for word in said.read_text().split()]
            while not _caught(driver, started[-1]):
                driver.send_signal(signal.SIGCONT)
        finally:
            driver.kill()
        until(lambda: not any(map(state, started)), "what it started to end")


def _caught(driver: subprocess.Popen[bytes], worker: int) -> bool:
    """Stop the driver when it has the worker stopped; whether the worker still was."""
    until(lambda: state(worker) == "T", "the worker to rest")
    driver.send_signal(signal.SIGSTOP)
    until(lambda: state(driver.pid) == "T", "the driver to stop")
    return state(worker) == "T"
