"""chances — how often an attempt that stands still is ended so that another may begin

Each such end lets another begin, which costs as much as a delivery, and what is spent on silent hosts is taken from
mail for others. So those for which it is said are fewer while mail for others is delivered.

Guarantees: no await, no clock. So many a second, and as many at one moment; while others are delivered fewer, but a
    fifth at the least. More may be taken at once, if there is any: what exceeds them is made up for before the next,
    within a second.
"""

from __future__ import annotations

from math import exp
from typing import Final

_LEAST: Final = 0.2  # of the rate
_FOR_EACH: Final = 0.4  # chances that an attempt takes which reached a destination that is known to answer


class Lately:
    """How many there were within about a second."""

    def __init__(self) -> None:
        self._count, self._at = 0.0, 0.0

    def add(self, now: float) -> None:
        """There was one more."""
        self._count = self.count(now) + 1
        self._at = now

    def count(self, now: float) -> float:
        """How many: each counts less the longer ago it was."""
        return self._count * exp(self._at - now)


class Chances:
    """A token bucket."""

    def __init__(self, rate: float) -> None:
        """rate: chances a second."""
        self._rate = rate
        self._most = max(1.0, rate)
        self._left = self._most
        self._at = 0.0
        self._others = Lately()  # deliveries

    def any(self, now: float, *, spare: bool = False) -> bool:
        """Whether there is one. spare: only if half of them are left."""
        since, self._at = now - self._at, now
        self._left = min(self._left + since / self.every(now), self._most)
        return self._left >= (max(1.0, self._most / 2) if spare else 1.0)

    def every(self, now: float) -> float:
        """Seconds from one to the next."""
        return 1 / max(self._rate - _FOR_EACH * self.others(now), self._rate * _LEAST)

    def others(self, now: float) -> float:
        """How many others were delivered within about a second."""
        return self._others.count(now)

    def take(self) -> None:
        """One is used."""
        self._left = max(self._left - 1, -self._most)

    def delivered(self, now: float) -> None:
        """An attempt reached a destination that is known to answer."""
        self._others.add(now)

    def give_back(self, chances: int = 1) -> None:
        """One was worth what it cost."""
        self._left = min(self._left + chances, self._most)
