"""priority — lets this process and its children run after mail

Owns: nice, and the core that is left to mail.
Guarantees: never raises the priority; where the system does not allow a step, the other is taken. A busy machine slows
    the analytics down and does not stop them: the scheduling class for idle time would.
See: nice(2), docs/explanation/analytics.md.
"""

from __future__ import annotations

import os
from contextlib import suppress
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
