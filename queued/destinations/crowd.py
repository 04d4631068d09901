"""crowd — how many recipients of one message are in hand, so that no message takes all there is room for

Owns: the count for each message, and whether more of it may begin.
Guarantees: no await, no clock. At most `most` recipients of a message are begun at once, and none while its results
    cannot be recorded: whoever keeps the count of one message locked stops this message and no other.
See: sql/README.md, "Counting bodies" (what is locked); queued/result.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from queued.not_now import NotNow

if TYPE_CHECKING:
    from uuid import UUID

_PATIENCE: Final = 3.0  # seconds without a result recorded, though some wait: more than one lock timeout
_BLOCKED: Final = 10.0  # seconds until such a message is looked at again
_SOONEST, _LATEST = 1.0, 600.0  # seconds that others of a message are parked for
_LATELY: Final = 0.1  # the weight of the last gap between two results in their mean
_LONGEST_GAP: Final = 1.0  # seconds: a message that was stopped is not slow for that


class _Message:
    __slots__ = ("begun", "gap", "last", "parked", "ready")

    def __init__(self, now: float) -> None:
        self.begun = 0  # recipients
        self.ready = 0  # of those: their results wait to be recorded
        self.last = now  # when it last got on: the first result that waits, or one recorded
        self.gap = 0.01  # mean seconds between two results recorded
        self.parked = now  # when the last one parked is expected to be begun


class Crowd:
    """The messages in hand."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._messages: dict[UUID, _Message] = {}

    def begin(self, message: UUID, recipients: int, now: float) -> NotNow | None:
        """Count these as begun, or say for how long they are to be parked."""
        known = self._messages.get(message)
        if known is None:
            known = self._messages[message] = _Message(now)
        elif known.ready and now - known.last > _PATIENCE:
            return NotNow(_BLOCKED, "results of this message cannot be recorded")
        elif known.begun and known.begun + recipients > self._most:
            known.parked = min(max(known.parked, now) + recipients * known.gap, now + _LATEST)
            return NotNow(max(known.parked - now, _SOONEST), f"{known.begun} other recipients of this message")
        known.begun += recipients
        return None

    def finish(self, message: UUID, recipients: int, now: float) -> None:
        """The results of these are there, to be recorded."""
        known = self._messages.get(message)
        if known is not None:
            if not known.ready:
                known.last = now
            known.ready += recipients

    def leave(self, message: UUID, now: float, *, recorded: bool) -> None:
        """One that was begun is out of hand, `recorded` when by its result."""
        known = self._messages.get(message)
        if known is None:
            return
        known.begun -= 1
        if recorded:
            known.ready -= 1
            known.gap += _LATELY * (min(now - known.last, _LONGEST_GAP) - known.gap)
            known.last = now
        if known.begun <= 0:
            del self._messages[message]
