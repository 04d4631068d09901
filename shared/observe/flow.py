"""flow — how many recipients this process accepted, delivered, deferred and failed in the last minutes

Owns: the events that count, and their sums over the last 1, 5 and 15 minutes.
Guarantees: one event costs an addition, and the memory does not depend on their number. A sum is exact to SLOT seconds.
See: shared/postgres/presence.py, which reports them.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shared.observe.events import Watcher

SLOT: Final = 5.0  # seconds
_MINUTES: Final = (1, 5, 15)
_SLOTS: Final = round(_MINUTES[-1] * 60 / SLOT)

#: Events that count: as what, and the field that says how many; without one an event is one.
_EVENTS: Final[Mapping[str, tuple[str, str | None]]] = {
    "spool.committed": ("accepted", "recipients"),
    "collect.batch": ("accepted", "tokens"),
    "result.delivered": ("delivered", None),
    "result.deferred": ("deferred", None),
    "result.failed": ("failed", None),
}
#: What is counted.
COUNTED: Final = tuple(dict.fromkeys(name for name, _ in _EVENTS.values()))


class Flow:
    """The counts of one process."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """clock: monotonic seconds."""
        self._clock = clock
        self._counts: dict[str, deque[tuple[int, int]]] = {name: deque() for name in COUNTED}  # (slot, count), in order

    def add(self, name: str, count: int) -> None:
        """Count so many more, of a name of COUNTED."""
        slot, counts = int(self._clock() // SLOT), self._counts[name]
        if counts and counts[-1][0] == slot:
            counts[-1] = slot, counts[-1][1] + count
        else:
            counts.append((slot, count))
            while counts[0][0] <= slot - _SLOTS:
                counts.popleft()

    def sums(self, name: str) -> list[int]:
        """How many in the last 1, 5 and 15 minutes."""
        slot = int(self._clock() // SLOT)
        return [
            sum(count for at, count in self._counts[name] if at > slot - minutes * 60 / SLOT) for minutes in _MINUTES
        ]

    def watchers(self) -> Mapping[str, Sequence[Watcher]]:
        """What counts as events happen."""
        return {event: [self._watcher(name, field)] for event, (name, field) in _EVENTS.items()}

    def _watcher(self, name: str, field: str | None) -> Watcher:
        def watch(fields: Mapping[str, object]) -> None:
            amount = 1 if field is None else fields[field]
            self.add(name, amount if isinstance(amount, int) else 0)

        return watch
