"""chances — how often an attempt that stands still is ended so that another may begin

Each such end lets another begin, which costs as much as a delivery, and what is spent on silent hosts is taken from
mail for others.

Guarantees: no await, no clock. So many a second, and as many at one moment. More may be taken at once, if there is any:
    what exceeds them is made up for before the next.
"""

from __future__ import annotations


class Chances:
    """A token bucket."""

    def __init__(self, rate: float) -> None:
        """rate: chances a second."""
        self._rate = rate
        self._most = max(1.0, rate)
        self._left = self._most
        self._at = 0.0

    def any(self, now: float, *, spare: bool = False) -> bool:
        """Whether there is one. spare: only if half of them are left."""
        since, self._at = now - self._at, now
        self._left = min(self._left + since * self._rate, self._most)
        return self._left >= (max(1.0, self._most / 2) if spare else 1.0)

    def take(self) -> None:
        """One is used."""
        self._left -= 1

    def give_back(self) -> None:
        """One was worth what it cost."""
        self._left = min(self._left + 1, self._most)
