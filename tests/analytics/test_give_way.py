"""test-give-way — Spark's workers rest while mail flows, and at no other time; nobody is left stopped

Guarantees: that a worker rests is seen in the state the kernel has it in.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from scripts.analytics import give_way, rest_workers
from scripts.analytics.source import copying
from tests.fixtures.database.lake import late

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not give_way.can_give_way(), reason="the list of a process's children is Linux's"),
]

_PATIENCE: Final = 60.0
_PR_SET_CHILD_SUBREAPER: Final = 36  # prctl(2)
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
        until(lambda: state(worker) == "R", "the worker to go on for good")


def test_the_eldest_and_the_daemon_are_never_stopped() -> None:
    """Java's many threads would all have to wake up for it."""
    with family() as (eldest, worker), give_way.giving_way(eldest, ""):
        seen = set()
        for _ in range(20):
            until(lambda: state(worker) == "T", "the worker to rest")
            seen.add(state(eldest))
            until(lambda: state(worker) != "T", "the worker to go on")
        assert "T" not in seen


def flows(queue: give_way.Queue) -> bool:
    """Whether mail flows by what is answered now."""
    queue.look()
    return queue.flows


def test_mail_flows_until_three_answers_in_a_row_say_nothing_new(history_database: str) -> None:
    with closing(give_way.Queue(history_database)) as queue:
        assert [flows(queue) for _ in range(5)] == [True, True, True, False, False]
        late(history_database, 0)
        until(lambda: flows(queue), "the attempt to be counted")
        until(lambda: not flows(queue), "nothing new")


def test_a_lost_connection_is_made_anew(history_database: str) -> None:
    with closing(give_way.Queue(history_database)) as queue:
        until(lambda: not flows(queue), "nothing new")
        with psycopg.connect(history_database, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = %s",
                [copying.NAME],
            )
        assert flows(queue)  # nobody knows
        until(lambda: not flows(queue), "nothing new")


@pytest.mark.parametrize("conninfo", ["", "postgresql://127.0.0.1:1/nobody?connect_timeout=1", "no=conninfo"])
def test_who_cannot_be_asked_is_given_way_to(conninfo: str) -> None:
    queue = give_way.Queue(conninfo)
    for _ in range(3):
        queue.look()
        assert queue.flows


def test_of_several_hosts_the_primary_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby records nothing, and would seem to be quiet for ever."""
    asked: list[str] = []

    def connect(conninfo: str, **_: object) -> None:
        asked.append(conninfo)
        raise psycopg.OperationalError("no")

    monkeypatch.setattr(psycopg, "connect", connect)
    give_way.Queue("postgresql://old,new/mail").look()
    assert "target_session_attrs=read-write" in asked[0]


def test_a_killed_driver_leaves_no_stopped_worker(tmp_path: Path) -> None:
    """Killed while its worker rests; in a container too, where what is orphaned may stay in the session it was in."""
    said = tmp_path / "said"
    with adopting(), subprocess.Popen((sys.executable, "-c", _SPARK, str(said))) as driver:
        try:
            until(said.exists, "the worker to begin")
            started = [int(word) for word in said.read_text().split()]
            resting = [pid for pid in rest_workers.children(driver.pid) if pid not in started]
            until(lambda: state(started[-1]) == "T", "the worker to rest")
        finally:
            driver.kill()
        until(lambda: not any(map(state, started + resting)), "what it started to end")
        for each in started + resting:
            with suppress(ChildProcessError):  # another one's
                os.waitpid(each, 0)


@contextmanager
def adopting() -> Iterator[None]:
    """What is orphaned below this process becomes its child, as it does with the first process of a container."""
    prctl = ctypes.CDLL(None).prctl
    assert prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
