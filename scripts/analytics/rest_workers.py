"""rest_workers — stops and continues Spark's Python workers in turns, as long as its standard input says `1`

Owns: the rhythm, and which processes the workers are.
Guarantees: nobody is left stopped when its standard input ends, as it does however its parent died. Signals that ask a
    group of processes to end do not end it before. Workers are held by descriptor: the number of one that ended may be
    somebody else's.
See: pidfd_send_signal(2); proc(5), children.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUN: Final = 0.002  # seconds: less than the 4 ms between two ticks of a kernel at 250 Hz, which mail waited for
_REST: Final = 0.008  # seconds
_LOOK: Final = 0.5  # seconds between looks at which workers there are


def main(java: int) -> None:
    """Until standard input ends; the workers are those of process `java`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while told := os.read(0, 64):
        while told.endswith(b"1"):
            with _workers(java) as workers:
                end = monotonic() + _LOOK
                while monotonic() < end and not select.select([0], [], [], _RUN)[0]:
                    _rest(workers)
            if select.select([0], [], [], 0)[0]:
                break


def _rest(workers: list[int]) -> None:
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
        for daemon in children(java):
            for pid in children(daemon):
                with suppress(OSError):
                    opened.append(os.pidfd_open(pid))
        yield opened
    finally:
        for descriptor in opened:
            os.close(descriptor)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that are there."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            found += map(int, children.read_text(encoding="ascii").split())
    return found


def _signal(workers: list[int], number: signal.Signals) -> None:
    for descriptor in workers:
        with suppress(OSError):  # it has ended
            signal.pidfd_send_signal(descriptor, number)


if __name__ == "__main__":
    main(int(sys.argv[1]))
