"""outage — whether PostgreSQL is away, as this process's failures tell

Owns: when an outage begins and ends, and what it counts. Pure: every time is an argument.
Guarantees: of any number of failures in one outage, one is the first; an outage ends once.
See: shared/observe/events.py, which logs one line for each of the two.
"""

from __future__ import annotations

from typing import NamedTuple


class Ended(NamedTuple):
    """An outage that is over: how long it was, in seconds, and how many failures there were."""

    seconds: float
    failures: int


class Outage:
    """Times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._failures = 0

    @property
    def lasts(self) -> bool:
        """Whether there is one now."""
        return self._since is not None

    def failed(self, now: float) -> bool:
        """PostgreSQL did not answer; whether that is the first failure of an outage."""
        self._failures += 1
        if self._since is not None:
            return False
        self._since = now
        return True

    def answered(self, now: float) -> Ended | None:
        """PostgreSQL answered; the outage that this ends, if there was one."""
        if self._since is None:
            return None
        ended = Ended(now - self._since, self._failures)
        self._since, self._failures = None, 0
        return ended
