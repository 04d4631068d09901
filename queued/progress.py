"""progress — how far attempts have come in their conversations, and the end of those that get nowhere

Owns: Progress, the one that the code under way belongs to, and the watch over all of them.
Called by: queued.attempts, which begins one for each attempt; queued.smtp.wire, which says what it waits for.
Guarantees: a connection opened for an attempt by a task of its own counts for that attempt. One that has not moved for
    its limit is cut off by way of its lease, at that moment; one timer serves all, and a step costs no more than a look
    at the clock.
See: RFC 1047 (why it matters whether the final dot was out).
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queued.claim import Lease
    from queued.smtp.transaction import Phase


class Progress:
    """The step an attempt has reached; None before anybody was spoken to."""

    __slots__ = ("lease", "limit", "moved", "phase", "stuck")

    def __init__(self, lease: Lease, limit: float) -> None:
        """limit: seconds without a step after which it is stuck, and its lease is cut."""
        self.lease = lease
        self.limit = limit
        self.phase: Phase | None = None
        self.moved = monotonic()
        self.stuck = False

    @property
    def uncertain(self) -> bool:
        """Whether the final dot is out: the peer may have taken the message."""
        return self.phase == "dot"


_CURRENT: ContextVar[Progress | None] = ContextVar("progress", default=None)


def reached(phase: Phase) -> None:
    """The attempt this code runs for, if any, waits for this now."""
    progress = _CURRENT.get()
    if progress is not None:
        progress.phase = phase
        progress.moved = monotonic()


def latest() -> Phase | None:
    """What the attempt this code runs for has waited for last."""
    progress = _CURRENT.get()
    return None if progress is None else progress.phase


class Watch:
    """The attempts of a worker that are under way."""

    def __init__(self) -> None:
        self._watched: set[Progress] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = 0.0  # monotonic seconds

    def begin(self, progress: Progress) -> None:
        """The task that runs now is this attempt, and what it begins belongs to it."""
        _CURRENT.set(progress)
        self._watched.add(progress)
        if self._timer is None or progress.moved + progress.limit < self._look_at:
            self._wait(progress.limit)

    def end(self, progress: Progress) -> None:
        """It is over."""
        self._watched.discard(progress)

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = monotonic() + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        now = monotonic()
        left = {progress: progress.moved + progress.limit - now for progress in self._watched}
        for progress, seconds in left.items():
            if seconds <= 0:
                progress.stuck = True
                self._watched.discard(progress)
                progress.lease.cut()
        if self._watched:
            self._wait(min(seconds for seconds in left.values() if seconds > 0))
