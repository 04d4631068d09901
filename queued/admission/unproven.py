"""unproven — the share of recipients in flight for destinations that were not reached recently

Guarantees: no await, no clock. Recipients for destinations without a recent success hold three quarters of
    `claim.inflight` at most, and of `claim.maxbytes`, so that mail for destinations that answer has the rest, whatever
    other hosts and name servers do: a delivery has a place for each recipient, or for each such part of its octets. A
    hundred may always be in flight. Half of the share is kept for recipients that were never tried, and
    of these the newest go first: however many have failed, and however many wait for their first try, new mail has room
    within moments. An attempt that stands still is ended for another as often as there are chances: those for mail that
    came just now are apart, and the others are fewer while other mail is delivered. So are, meanwhile, those that
    begin, unless they came just now or half of them reach their destination. A recipient without a place is parked, at
    the recent pace: behind those parked before, or, when it was never tried, behind those that are newer.
See: queued/waiting/watchdog.py, which makes room at such a time; docs/explanation/admission.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from queued.destinations.destination import LEAST
from queued.waiting.chances import Chances, Lately
from queued.waiting.deferral import Deferral, ParkedLine
from queued.waiting.newest import Newest
from queued.waiting.watchdog import MOMENT, STANDING
from shared.how_many import how_many

_NEW, _OTHERS = 100.0, 50.0  # attempts ended within a second: for recipients that came just now, and for others
_FLOWS: Final = 0.5  # deliveries within about a second to destinations that were reached: from then on they come first
_FOR_ONE: Final = 2  # chances to begin that one takes back which is reached: where half are, none is held up
_QUICKEST: Final = 0.001  # seconds between two recipients that leave


class Held(NamedTuple):
    """A delivery in the share. first: whether the recipients were never tried. newest: the highest of their ids."""

    recipients: int
    first: bool
    newest: int
    octets: int = 0


class Unproven:
    """Those in flight."""

    def __init__(self, inflight: int, maxbytes: int = 0) -> None:
        """`maxbytes`: the octets that all may hold, 0 for any."""
        self._most = max(inflight * 3 // 4, min(inflight, LEAST))
        self._most_again = -(-self._most // 2)
        self._octets = maxbytes * 3 // 4 // self._most  # for each place
        self.recipients = 0  # in flight
        self._taken = self._again = 0  # places, and those of recipients tried before
        self._line = ParkedLine()  # of those tried before
        self._newest = Newest()  # of those never tried
        self._for_new = Chances(min(_NEW, self._most / MOMENT))
        self._for_others = Chances(min(_OTHERS, self._most / MOMENT))
        self._begins = Chances(_OTHERS)
        self._reached = Lately()  # attempts in the share
        self._slowest = STANDING / self._most_again  # what stands still for longer gives way
        self._gap = 0.0  # mean seconds between two given back, over a MOMENT or more; 0 when not known yet
        self._left = 0.0  # when the last one did, or the first of those in flight came
        self._since, self._gone = 0.0, 0  # places given back since then, from which the gap will be known

    def enter(self, wanted: Held, now: float) -> bool:
        """Count these as in flight, if there is room for them."""
        # A delivery too large for any room has it alone.
        places = self._places(wanted)
        if self.has_no_room(wanted) or (self._taken and self._taken + places > self._most):
            return False
        if not self.recipients:
            self._left = self._since = now  # the time before has nothing to do with these
            self._gone, self._gap = 0, 0.0
        if wanted.first:
            self._newest.leave(wanted.newest)
        self.recipients += wanted.recipients
        self._taken += places
        self._again += places * (not wanted.first)
        return True

    def has_no_room(self, wanted: Held) -> bool:
        """Whether those tried before leave these, which are of them, no room."""
        return not wanted.first and bool(self._again) and self._again + self._places(wanted) > self._most_again

    def chances(self, wanted: Held, now: float) -> Chances | None:
        """The chances to end another attempt for these; None if there is none."""
        if wanted.first and not self._newest.waits(wanted.newest):
            return self._for_new if self._for_new.any(now) else None
        many = wanted.first and self._newest.newer(wanted.newest, now) > _NEW
        return self._for_others if self._for_others.any(now, spare=many) else None

    def reached(self, now: float) -> None:
        """One of those in flight has reached its destination: to let it begin was worth what it cost."""
        self._reached.add(now)
        self._for_new.give_back()
        self._for_others.give_back()
        self._begins.give_back(_FOR_ONE)

    def may_begin(self, now: float) -> bool:
        """Whether one that has its place, and did not come just now, may begin beside mail for others."""
        may = self._begins.any(now) or self._begins.others(now) < _FLOWS
        if may:
            self._begins.take()
        return may

    def delivered(self, now: float) -> None:
        """An attempt reached a destination that was reached before."""
        self._for_others.delivered(now)
        self._begins.delivered(now)

    def parked(self, wanted: Held, now: float, *, follow: int = 0) -> Deferral:
        """For how long recipients without a place are parked. follow: how many newer ones may come next."""
        pace = self._pace(now)
        if wanted.first:
            # As many may begin as there are chances, and one for each that reaches its destination.
            pace = max(pace, 1 / (1 / self._for_others.every(now) + self._reached.count(now)))
            seconds = self._newest.put_off(wanted.newest, pace, now, follow=follow)
        else:
            seconds = self._line.seconds(now, pace)
        return Deferral(
            seconds, f"{how_many(self.recipients, 'recipient')} for destinations that have not answered yet"
        )

    def leave(self, held: Held, now: float) -> None:
        """These are no longer in flight, however that came."""
        places = self._places(held)
        self.recipients -= held.recipients
        self._taken -= places
        self._again -= places * (not held.first)
        self._left = now
        self._gone += places
        if now - self._since >= MOMENT:  # many leave at one moment: the mean of single gaps would be far too short
            self._gap = max((now - self._since) / self._gone, _QUICKEST)
            self._since, self._gone = now, 0

    def _places(self, held: Held) -> int:
        return max(held.recipients, -(-held.octets // self._octets) if self._octets else 0)

    def _pace(self, now: float) -> float:
        """Seconds between two places given back, of late."""
        gap = self._gap or (now - self._since) / (self._gone + 1)
        return min(max(gap, (now - self._left) / self._most, _QUICKEST), self._slowest)
