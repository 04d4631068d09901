"""give_way — Spark's Python workers rest for most of the time while mail flows beside them

Owns: whether mail flows, and telling it to the process that stops and continues the workers.
Guarantees: a worker runs for 2 ms and rests for 8 ms as long as attempts are being recorded, or nobody can tell; it is
    never stopped otherwise, and never left stopped, however this process ends.
Why: coming last (SCHED_IDLE) is not enough. A core that never rests looks busy to Linux, even if what runs there would
    give it up at once: tasks of mail that wake up queue behind each other on the other core, and nobody fetches them.
See: scripts/analytics/rest_workers.py; sched(7); SIS_UTIL in Linux's kernel/sched/fair.c.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import IO, TYPE_CHECKING, Final

from scripts.analytics import rest_workers
from scripts.analytics.source import copying
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_ASK: Final = 1.0  # seconds between questions to PostgreSQL, which counts at most once a second
_LONGEST: Final = timedelta(seconds=2)  # for an answer
_QUIET: Final = 3  # equal answers in a row, until no mail flows


@contextmanager
def giving_way(java: int, conninfo: str) -> Iterator[None]:
    """Let the Python workers of process `java` give way to the queue at `conninfo`; "": to one that cannot be asked."""
    over = Event()
    words = (sys.executable, "-P", rest_workers.__file__, str(java))
    with subprocess.Popen(words, stdin=subprocess.PIPE, bufsize=0) as resting:  # noqa: S603 - ours
        try:
            if resting.stdin is not None:
                Thread(target=_tell, args=(resting.stdin, Queue(conninfo), over), name="give-way", daemon=True).start()
            yield
        finally:
            over.set()


def can_give_way() -> bool:
    """Whether this system can: Linux, with the list of a process's children."""
    return hasattr(signal, "pidfd_send_signal") and Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists()


class Queue:
    """What is known of the queue; unless it is known to be quiet, mail flows."""

    def __init__(self, conninfo: str) -> None:
        self._counts = _counts(conninfo)
        self._attempts: int | None = None
        self._equal = 0

    @property
    def flows(self) -> bool:
        """Whether attempts were recorded of late."""
        return self._equal < _QUIET

    def look(self) -> None:
        """Ask what was recorded since the question before."""
        before, self._attempts = self._attempts, next(self._counts)
        self._equal = self._equal + 1 if before is not None and self._attempts == before else 0

    def close(self) -> None:
        """Ask no more."""
        self._counts.close()


def _counts(conninfo: str) -> Generator[int | None]:
    """The attempts recorded so far, asked for anew each time; None where nobody answers."""
    while conninfo:
        # Writable, so that of several hosts the primary is asked: a standby records nothing.
        with suppress(PillarboxError), copying.session(conninfo, read_only=False, timeout=_LONGEST) as session:
            while True:
                [row] = copying.rows(session, "analytics_flow")
                yield int(row.attempts)
        yield None
    while True:
        yield None


def _tell(workers: IO[bytes], queue: Queue, over: Event) -> None:
    """Until `over`. Meanwhile what was said last holds, however long an answer takes."""
    with suppress(OSError, ValueError), closing(queue):  # it is over, and the pipe is closed
        told = None
        while True:
            if queue.flows is not told:
                workers.write(b"1" if queue.flows else b"0")
                told = queue.flows
            queue.look()
            if over.wait(_ASK):
                return
