"""floor — decides when a scan that begins where the last one ended begins at the bottom again

Owns: FullPass. Finished rows leave dead entries at the lower end of an index in order of time, which vacuum cannot
    remove while a session holds an old snapshot. Scans therefore begin at a floor, and a full pass finds rows below it.
Guarantees: there is a full pass every `every` seconds, but where one takes more than a quarter of a second, they take a
    twentieth of the time at most, however long one takes.
"""

from __future__ import annotations

import math
from time import monotonic
from typing import Final

_SHARE: Final = 20
_LONG: Final = 0.25  # seconds; below it a busy machine shows, and not what is left of finished rows


class FullPass:
    """Whether the next scan is to begin at the bottom."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._next = -math.inf

    def due(self) -> bool:
        """It is time for one."""
        return monotonic() >= self._next

    def done(self, started: float) -> None:
        """One that began then has ended, or failed."""
        took = monotonic() - started
        self._next = started + max(self._every, _SHARE * took if took > _LONG else 0.0)

    def hurry(self) -> None:
        """The next scan is one."""
        self._next = -math.inf
