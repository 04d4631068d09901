"""backlog — the results that PostgreSQL does not have yet, and which of them are tried next

Owns: the order of results that wait: with the others, apart once PostgreSQL did not take them even alone, or aside for
    a minute once it refused them in every form.
Guarantees: pure but for the clock. Results that wait apart, however many, keep others waiting for one try of one of
    them, and take a quarter of the time at most while others come. What shares its message with a result whose rows
    another session keeps locked waits apart too, since the count of that message is one row.
See: queued/result.py.
"""

from __future__ import annotations

import math
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final

from queued.claiming.leaves import Leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from queued.claiming.leaves import Partid
    from queued.values import Result

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between tries of results that wait apart
_SHARE: Final = 3  # times as long as such a try took, the others have
_WAITED: Final = 1.0  # seconds: a try that was so long in PostgreSQL has waited for its lock already


class Backlog:
    """Results, each in one place; those that `take` gave are being tried until `done`, `back` or `put_apart`."""

    def __init__(self) -> None:
        self._leaves = Leaves()
        self._others: deque[Result] = deque()
        self._apart: deque[Result] = deque()
        self._locked: set[UUID] = set()  # messages of which another session kept something locked at the last try
        self._pause = _FIRST_PAUSE
        self._due = 0.0  # when the next that waits apart may be tried while others wait, and when otherwise
        self._rested = 0.0
        #: Those that are being tried, and whether that is one that waits apart.
        self.tried: list[Result] = []
        self.is_apart = False
        #: How many wait aside.
        self.aside = 0

    def __len__(self) -> int:
        return len(self._others) + len(self._apart) + len(self.tried) + self.aside

    @property
    def wary(self) -> bool:
        """Whether another session keeps something locked, so that a try of many had better not wait for long."""
        return bool(self._locked)

    @property
    def has_apart(self) -> bool:
        """Whether any wait apart."""
        return bool(self._apart)

    @property
    def waiting(self) -> int:
        """How many wait, but for those aside."""
        return len(self._others) + len(self._apart)

    @property
    def ready(self) -> int:
        """How many can be tried together."""
        return len(self._others)

    def add(self, results: Iterable[Result]) -> None:
        """These wait; behind those of the same kind."""
        for result in results:
            (self._apart if result.claimed.message_id in self._locked else self._others).append(result)

    def seconds(self) -> float:
        """Until there is something to try; endless when nothing waits."""
        if self._others:
            return 0.0
        return max(self._rested - monotonic(), 0.0) if self._apart else math.inf

    def take(self, limit: int) -> list[Result]:
        """The next to try, of few leaves; one alone, of those that wait apart, when it is its turn."""
        self.is_apart = bool(self._apart) and (not self._others or monotonic() >= self._due)
        if self.is_apart:
            self.tried = [self._apart.popleft()]
            return self.tried
        group = [self._others.popleft() for _ in range(min(limit, len(self._others)))]
        self.tried = self._leaves.first(group, lambda result: result.claimed)
        if len(self.tried) < len(group):
            taken = set(map(id, self.tried))
            self._others.extendleft(result for result in reversed(group) if id(result) not in taken)
        return self.tried

    def named(self, group: Iterable[Result]) -> list[Partid]:
        """The partition ids to name in a statement about these."""
        return self._leaves.named(result.claimed for result in group)

    def done(self) -> None:
        """Those that were tried are recorded."""
        if self._locked:
            self._locked.difference_update(result.claimed.message_id for result in self.tried)
        if self.is_apart:
            self._pause, self._due, self._rested = _FIRST_PAUSE, 0.0, 0.0
        self.tried = []

    def back(self, tried: Sequence[Result] | None = None) -> None:
        """Those that were tried, or what is left of them, are tried again before all others of their kind."""
        left = self.tried if tried is None else tried
        (self._apart if self.is_apart else self._others).extendleft(reversed(left))
        self.tried = []

    def put_apart(self, took: float, *, locked: bool = False) -> float:
        """The one that was tried, for so many seconds, waits apart; the seconds until the next of those is tried."""
        [result] = self.tried
        self.tried = []
        first = not self._apart
        if locked and (message := result.claimed.message_id) not in self._locked:
            self._locked.add(message)
            if theirs := [other for other in self._others if other.claimed.message_id == message]:
                self._others = deque(other for other in self._others if other.claimed.message_id != message)
                self._apart.extend(theirs)
        self._apart.append(result)
        # A try that waits for the lock has the row before a claim, which passes over locked rows: so wait there, not
        # here. The lease may be over, for a heartbeat cannot put it off meanwhile.
        pause = 0.0 if locked and took >= _WAITED else self._pause
        if self.is_apart or first:
            self._rested = monotonic() + pause
            self._due = self._rested + _SHARE * took
            self._pause = min(2 * pause, _LONGEST_PAUSE) if pause else self._pause
        return pause

    def put_aside(self) -> Result:
        """The one that was tried waits until `again`."""
        [result] = self.tried
        self.tried = []
        self.aside += 1
        return result

    def again(self, result: Result) -> None:
        """One that waited aside waits with the others."""
        self.aside -= 1
        self.add([result])
