"""newest — those that wait to be tried or asked about for the first time, ordered by age

Guarantees: no await, no clock. What did not come back within _LATE after its time counts no longer: it was deleted,
    held, or claimed by another worker. Memory is bounded: of more than _MOST the oldest are forgotten.
See: queued/admission/unproven.py and queued/routing/question_line.py, which let the newest go first.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from math import exp
from typing import Final

from queued.waiting.deferral import SOONEST

_LATE: Final = 10.0  # seconds, and as often those that are late are looked for
_MOST: Final = 10_000
_LONGEST: Final = 60.0  # seconds until one that is put off comes again
_LATELY: Final = 10.0  # seconds; a flood is claimed within such a time
_RETURN: Final = 0.02  # seconds between two that return, if many were put off: each costs a claim


class Newest:
    """Ids, which grow with the time at which they came."""

    def __init__(self) -> None:
        self._waiting: list[int] = []  # oldest first
        self._due: dict[int, float] = {}  # when each of them is to come back, in the caller's seconds
        self._sweep_at = 0.0
        self._lately, self._came_at = 0.0, 0.0  # those that came for the first time within about _LATELY

    def __len__(self) -> int:
        return len(self._waiting)

    def waits(self, mine: int) -> bool:
        """Whether this one was put off before."""
        return mine in self._due

    def newer(self, mine: int, now: float) -> int:
        """How many wait that are newer than this one."""
        if now >= self._sweep_at:
            self._sweep_at = now + _LATE
            self._due = {each: due for each, due in self._due.items() if due + _LATE > now}
            self._waiting = sorted(self._due)
        return len(self._waiting) - bisect_right(self._waiting, mine)

    def put_off(self, mine: int, pace: float, now: float, *, follow: int = 0) -> float:
        """For how many seconds this one waits now: until those that are newer have gone, one every `pace` seconds.

        follow: how many newer ones may come next; no more are reckoned with than came within _LATELY. It
        returns behind them, so that they do not all return at one moment.
        """
        self._lately *= exp((self._came_at - now) / _LATELY)
        self._came_at = now
        self._lately += mine not in self._due
        ahead = min(self.newer(mine, now) * pace + min(follow, self._lately) * min(pace, _RETURN), _LONGEST)
        seconds = max(SOONEST, ahead * random.uniform(0.7, 1.0))
        self.wait(mine, now + seconds)
        return seconds

    def wait(self, mine: int, due: float) -> None:
        """This one waits until then."""
        if mine not in self._due:
            self._waiting.insert(bisect_left(self._waiting, mine), mine)
        self._due[mine] = due
        if len(self._waiting) > _MOST:
            self.leave(self._waiting[0])

    def leave(self, mine: int) -> None:
        """This one waits no more."""
        if self._due.pop(mine, None) is not None:
            del self._waiting[bisect_left(self._waiting, mine)]
