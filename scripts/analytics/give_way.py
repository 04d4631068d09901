"""give_way — Spark's Python workers rest for more than half of the time while mail flows beside them

Owns: the thread that stops and continues them, and how it knows whether mail flows.
Called by: scripts.analytics.session, for a local Spark on Linux.
Guarantees: a worker runs for 4 ms and rests for 6 ms as long as attempts are being recorded, or nobody can tell; it is
    never stopped otherwise, and never left stopped: this thread continues it whatever happens, and the kernel ends it
    if this process is killed. Workers are held by descriptor: the number of one that ended may be somebody else's.
Why: coming last (SCHED_IDLE) is not enough. A core that never rests looks busy to Linux, even if what runs there would
    give it up at once: tasks of mail that wake up queue behind each other on the other core, and nobody fetches them.
See: sched(7); pidfd_send_signal(2); SIS_UTIL in Linux's kernel/sched/fair.c; docs/explanation/analytics.md, "Measured".
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from scripts.analytics import copying
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUN: Final = 0.004  # seconds, well below the 32 ms over which Linux halves what it remembers of a core's load
_REST: Final = 0.006  # seconds
_LOOK: Final = 0.5  # seconds between looks at which workers there are
_ASK: Final = 2.0  # seconds between questions to PostgreSQL, which counts at most once a second


@contextmanager
def giving_way(java: int, conninfo: str) -> Iterator[None]:
    """Let the Python workers of process `java` give way to the queue at `conninfo`; "": to one that cannot be asked."""
    over = Event()
    pausing = Thread(target=_pause, args=(java, _Queue(conninfo), over), name="give-way", daemon=True)
    pausing.start()
    try:
        yield
    finally:
        over.set()
        pausing.join(_ASK)  # a server that does not answer is not waited for: nobody is stopped then


def can_give_way() -> bool:
    """Whether this system can: Linux, with the list of a process's children."""
    return hasattr(signal, "pidfd_send_signal") and Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists()


class _Queue:
    """Whether mail flows, asked rarely."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._attempts: int | None = None
        self._next = 0.0
        self._flows = not conninfo

    def flows(self) -> bool:
        """Whether attempts were recorded since the question before; also when it was not answered."""
        if self._conninfo and monotonic() >= self._next:
            before, self._attempts = self._attempts, self._count()
            self._flows = self._attempts is None or (before is not None and self._attempts > before)
            self._next = monotonic() + _ASK
        return self._flows

    def _count(self) -> int | None:
        try:
            with copying.session(self._conninfo, timeout=timedelta(seconds=_ASK)) as session:
                [row] = copying.rows(session, "analytics_flow")
        except PillarboxError:
            return None
        return int(row.attempts)


def _pause(java: int, queue: _Queue, over: Event) -> None:
    """Until `over`."""
    while not over.is_set():
        if not queue.flows():
            over.wait(_LOOK)
            continue
        with _workers(java) as workers:
            end = monotonic() + _LOOK
            while monotonic() < end and not over.wait(_RUN):
                try:
                    _signal(workers, signal.SIGSTOP)
                    sleep(_REST)
                finally:
                    _signal(workers, signal.SIGCONT)


@contextmanager
def _workers(java: int) -> Iterator[list[int]]:
    """The Python workers there are, as descriptors of processes: what Java's child, PySpark's daemon, has forked."""
    opened: list[int] = []
    try:
        for daemon in _children(java):
            for pid in _children(daemon):
                with suppress(OSError):
                    opened.append(os.pidfd_open(pid))
        yield opened
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            found += map(int, children.read_text(encoding="ascii").split())
    return found


def _signal(workers: list[int], number: signal.Signals) -> None:
    for descriptor in workers:
        with suppress(OSError):  # it has ended
            signal.pidfd_send_signal(descriptor, number)
