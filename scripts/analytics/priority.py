"""priority — lets this process and its children run after mail

Owns: nice, and Linux' scheduling class for idle time.
Guarantees: never raises the priority; where the system does not allow a step, the other is taken. In the class for
    idle time a process runs when no other wants its core, and gives it up at once when one does; it keeps a share of
    about 0.3 %, so it goes on, if slowly, while mail needs every core.
See: nice(2); sched(7), SCHED_IDLE; docs/explanation/analytics.md, "Reading".
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

NICE: Final = 10


def lower() -> None:
    """Run at nice 10: what a person or a page waits for."""
    if os.getpriority(os.PRIO_PROCESS, 0) < NICE:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, NICE)


def only_in_idle_time() -> None:
    """Run when nothing else wants to; at nice 10 where the system is not Linux."""
    lower()
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
