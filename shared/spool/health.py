"""health — whether a new message would be committed now

Owns: knowledge about PostgreSQL without a query: whether it is down, and how long its running commits have taken.
    Pure: every time is an argument.
Guarantees: `trouble` costs a few comparisons. Its answers end by themselves: an outage with the first commit or probe
    that succeeds, slowness with the end of the slow commits.
"""

from __future__ import annotations

from shared.errors import SpoolUnavailable
from shared.how_many import how_many

_MANY = 2  # commits that hang at the same time are no accident, though another connection may be free
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between probes: mail flows within 5 s of a promotion


class Health:
    """Times are monotonic seconds."""

    def __init__(self, limit: float) -> None:
        """`limit` is how many seconds a commit may take while new messages are still invited."""
        self.committers = 0
        self.down: str | None = None  # the error, if the last news of PostgreSQL was an outage
        self.pause = 0.0  # seconds until the next probe: none after a first failure, then ever more
        self._limit = limit
        self._begun: dict[object, float] = {}  # commits and probes under way

    def begin(self, who: object, now: float) -> None:
        """A commit or a probe begins."""
        self._begun[who] = now

    def ended(self, who: object) -> None:
        """It is over, and says nothing about PostgreSQL."""
        self._begun.pop(who, None)

    def succeeded(self, who: object) -> None:
        """It went through."""
        self.ended(who)
        self.down = None
        self.pause = 0.0

    def failed(self, who: object, reason: str) -> None:
        """PostgreSQL, or the way to it, is in trouble."""
        self.ended(who)
        if self.down is not None:
            self.pause = min(max(2 * self.pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        self.down = reason

    def trouble(self, now: float) -> SpoolUnavailable | None:
        """Why no new message should be invited; None when nothing speaks against it."""
        if self.down is not None:
            return SpoolUnavailable(self.down)
        if (
            self._begun
            and len(self._begun) >= min(self.committers, _MANY)
            and now - max(self._begun.values()) > self._limit
        ):
            return SpoolUnavailable(f"no commit has come back for {how_many(self._limit, 'second', form='g')}")
        return None
