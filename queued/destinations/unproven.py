"""unproven — the share of recipients in flight for destinations that were not reached recently

Guarantees: no await, no clock. Recipients for destinations without a recent success hold three quarters of
    `claim.inflight` at most, so that mail for destinations that answer has the rest, whatever other hosts and name
    servers do. A hundred may always be in flight. Half of the share is kept for recipients that were never tried, and
    of these the newest go first: however many have failed, and however many wait for their first try, new mail has
    room within moments. A recipient without a place is parked, at the recent pace: behind those parked before, or,
    when it was never tried, behind those that are newer.
See: queued/watchdog.py, which makes room at such a time; docs/explanation/admission.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from queued.deferral import SOONEST, Deferral, ParkedLine
from queued.destinations.destination import LEAST
from queued.newest import Newest
from queued.watchdog import MOMENT, STANDING
from shared.how_many import how_many

_DISPLACED: Final = 50.0  # attempts cut off within a second: each lets another begin, which costs as much as a delivery
_QUICKEST: Final = 0.001  # seconds between two recipients that leave


class Held(NamedTuple):
    """Places in the share. first: whether the recipients were never tried. newest: the highest of their ids."""

    recipients: int
    first: bool
    newest: int


class Unproven:
    """Those in flight."""

    def __init__(self, inflight: int) -> None:
        self._most = max(inflight * 3 // 4, min(inflight, LEAST))
        self._most_again = -(-self._most // 2)
        self.recipients = 0  # in flight
        self._again = 0  # of them, those tried before
        self._line = ParkedLine()  # of those tried before
        self._newest = Newest()  # of those never tried
        self._displacing = min(_DISPLACED, self._most / MOMENT)  # attempts a second
        self._may_displace = max(1.0, self._displacing)  # at one moment
        self._displaced_at = 0.0
        self._slowest = STANDING / self._most_again  # what stands still for longer gives way
        self._gap = _QUICKEST
        self._left = 0.0  # when the last one did, or the first of those in flight came
        self._since, self._gone = 0.0, 0  # recipients that left since then, from which the gap will be known

    def enter(self, wanted: Held, now: float) -> bool:
        """Count these as in flight, if there is room for them."""
        # A delivery too large for any room has it alone.
        if self.crowded(wanted) or (self.recipients and self.recipients + wanted.recipients > self._most):
            return False
        if not self.recipients:
            self._left = self._since = now  # the time before has nothing to do with these
            self._gone = 0
        if wanted.first:
            self._newest.leave(wanted.newest)
        self.recipients += wanted.recipients
        self._again += wanted.recipients * (not wanted.first)
        return True

    def crowded(self, wanted: Held) -> bool:
        """Whether those tried before leave these, which are of them, no room."""
        return not wanted.first and bool(self._again) and self._again + wanted.recipients > self._most_again

    def may_displace(self, wanted: Held, now: float) -> bool:
        """Whether another attempt may be cut off for these. Half of the chances are for the newest never tried."""
        most, since, self._displaced_at = max(1.0, self._displacing), now - self._displaced_at, now
        self._may_displace = min(self._may_displace + since * self._displacing, most)
        newer = self._newest.newer(wanted.newest, now) if wanted.first else 1
        if wanted.first and newer > most * SOONEST / 2:
            return False  # those ask again within a second, and take all that may be displaced
        return self._may_displace >= (max(1.0, most / 2) if newer else 1.0)

    def displaced(self) -> None:
        """An attempt was cut off."""
        self._may_displace -= 1

    def reached(self) -> None:
        """One of those in flight has reached its destination: to let it begin was worth what it cost."""
        self._may_displace = min(self._may_displace + 1, max(1.0, self._displacing))

    def parked(self, wanted: Held, now: float, *, more: bool = False) -> Deferral:
        """For how long recipients without a place are parked. more: whether newer ones follow."""
        pace = self._pace(now)
        if wanted.first:
            seconds = self._newest.put_off(wanted.newest, pace, now, more=more)
        else:
            seconds = self._line.seconds(now, pace)
        return Deferral(
            seconds, f"{how_many(self.recipients, 'recipient')} for destinations that have not answered yet"
        )

    def leave(self, held: Held, now: float) -> None:
        """These are no longer in flight, however that came."""
        self.recipients -= held.recipients
        self._again -= held.recipients * (not held.first)
        self._left = now
        self._gone += held.recipients
        if now - self._since >= MOMENT:  # many leave at one moment: the mean of single gaps would be far too short
            self._gap = max((now - self._since) / self._gone, _QUICKEST)
            self._since, self._gone = now, 0

    def _pace(self, now: float) -> float:
        """Seconds between two recipients that leave, of late."""
        return min(max(self._gap, (now - self._left) / self._most), self._slowest)
