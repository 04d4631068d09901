"""unproven — the share of recipients in flight for destinations that were not reached recently

Guarantees: no await, no clock. Recipients for destinations without a recent success hold three quarters of
    `claim.inflight` at most, so that mail for destinations that answer has the rest, whatever other hosts and name
    servers do. A hundred may always be in flight. A recipient without a place is parked behind those parked before, at
    the recent pace.
See: queued/watchdog.py, which makes room at such a time; docs/explanation/admission.md.
"""

from __future__ import annotations

from typing import Final

from queued.deferral import Deferral, ParkedLine
from queued.destinations.destination import LEAST

_QUICKEST, _SLOWEST = 0.001, 10.0  # seconds between two recipients that leave
_LATELY: Final = 0.1  # the weight of the last gap in their mean


class Unproven:
    """Those in flight."""

    def __init__(self, inflight: int) -> None:
        self._most = max(inflight * 3 // 4, min(inflight, LEAST))
        self.recipients = 0  # in flight
        self._line = ParkedLine()
        self._gap = _QUICKEST
        self._left = 0.0  # when the last one did, or the first of those in flight came

    def enter(self, recipients: int, now: float) -> Deferral | None:
        """Count these as in flight, or say for how long they are to be parked."""
        if self.recipients and self.recipients + recipients > self._most:
            gap = max(self._gap, min((now - self._left) / self._most, _SLOWEST))
            reason = f"{self.recipients} recipients for destinations that have not answered yet"
            return Deferral(self._line.seconds(now, gap), reason)
        if not self.recipients:
            self._left = now  # the time before has nothing to do with these
        self.recipients += recipients
        return None

    def leave(self, recipients: int, now: float) -> None:
        """These are no longer in flight, however that came."""
        self.recipients -= recipients
        gap = min(max((now - self._left) / recipients, _QUICKEST), _SLOWEST)
        self._gap += _LATELY * (gap - self._gap)
        self._left = now
