"""priority — lets this process and its children run only where mail leaves room

Owns: nice, the scheduling class for idle time, and the core that is left to mail.
Guarantees: never raises the priority; where the system does not allow a step, the others are taken.
See: nice(2), sched(7), docs/explanation/analytics.md.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

NICE: Final = 10


def lower() -> None:
    """Run at nice 10."""
    if os.getpriority(os.PRIO_PROCESS, 0) < NICE:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, NICE)


def leave_a_core() -> None:
    """Keep this process and its children, Java's threads included, off one core."""
    with suppress(AttributeError, OSError):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) == os.cpu_count() and len(cores) > 1:
            os.sched_setaffinity(0, cores[1:])


def idle(process: int) -> None:
    """Let a process and its future children run only on idle processors; nice alone still gets a share of busy ones."""
    done: set[str] = set()
    # A thread created meanwhile inherits the class of its creator, which may not have been changed yet.
    while new := {thread.name for thread in Path(f"/proc/{process}/task").glob("*")} - done:
        for thread in new:
            with suppress(AttributeError, OSError):  # not Linux, or a thread that has just ended
                os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))
        done |= new


def idle_worker() -> None:
    """The same for this process, as a worker begins."""
    lower()
    idle(os.getpid())
