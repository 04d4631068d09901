"""destination — the deliveries in flight to one destination: running, waiting in memory, or parked

Owns: Waiting and Destination: the window of one destination, its waiting line in memory, how long it was dead, and the
    estimate of when a parked delivery can be started.
Guarantees: no await, no clock: the time comes with each call, in monotonic seconds. Never more turns at once than the
    window, and only one to test whether a dead destination answers again. Turns go by priority, then by age. Where
    an older delivery finds no room, the youngest that waits is parked instead, so parked mail always gets its turn.
    Every place ends in exactly one way: with a turn, or by being sent away.
See: queued/destinations/feedback.py; docs/explanation/pacing.md, "Parking".
"""

from __future__ import annotations

import asyncio
import random
from bisect import insort
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.destinations import feedback
from queued.destinations.feedback import Steering
from queued.waiting.deferral import LATEST, SOONEST, Deferral
from shared.how_many import how_many

if TYPE_CHECKING:
    from shared.config.queued.settings import Claim as ClaimSettings
    from shared.config.queued.transport import Transport as TransportSettings

_QUICKEST: Final = 0.001  # seconds between two turns, when nothing is known yet
_TURNS: Final = 50  # over how many turns their mean gap is taken: more than begin at one moment
_MOVING: Final = 1.0  # seconds since the last turn for which a destination counts as moving
_STANDING: Final = 10.0  # seconds since it was reached last for which one slow attempt says nothing
_MOMENTS: Final = 0.25  # seconds: a delivery with its turn within them does not take room for long
_BELIEVED: Final = 60.0  # seconds until one connection more than a host took is tried again
_SPREAD: Final = 60.0  # seconds over which what waited for a dead destination comes back, at most
_AFTERWARDS: Final = 3600.0  # seconds after our login was refused in which mail that stayed for it may still wait
_APART: Final = 0.02  # seconds between two of them at the least: thousands come back in minutes, not at once

type Rank = tuple[int, int]  # class of priority, urgent first; recipient's id

LEAST: Final = 100  # recipients that one destination may always hold: so few do not starve others


class Share(NamedTuple):
    """How much of what the worker has in flight one destination may hold."""

    recipients: int
    octets: int
    most: int = 0  # recipients, where they have their turn within moments


class Rest(NamedTuple):
    """Seconds for which a dead destination is left alone: at first, and at most."""

    first: float
    longest: float


class Busy(Deferral):
    """The destination takes mail, and has all it may hold; every so many seconds it has a turn, 0 when unknown."""


class Waiting:
    """One delivery in a destination. `settled` is set once it has its turn or must go, by `away` if that says so."""

    __slots__ = ("away", "closed", "destination", "octets", "rank", "recipients", "settled", "started")

    def __init__(self, destination: Destination, rank: Rank, recipients: int, octets: int) -> None:
        self.destination = destination
        self.rank = rank
        self.recipients = recipients
        self.octets = octets
        self.settled = asyncio.Event()
        self.started = False
        self.closed = False  # the worker stops: it goes back as if it had not been claimed
        self.away: Deferral | None = None

    def __lt__(self, other: Waiting) -> bool:
        return self.rank < other.rank


class Destination:
    """One destination of one transport, as long as something is in flight for it or worth remembering."""

    __slots__ = (
        "_dead_for",
        "_dead_until",
        "_gap",
        "_last_end",
        "_last_parked",
        "_last_start",
        "_login_refused",
        "_most",
        "_most_until",
        "_patient",
        "_rest",
        "_stands",
        "_steering",
        "_turns",
        "_why",
        "active",
        "label",
        "octets",
        "proven",
        "recipients",
        "touched",
        "waiting",
        "window",
    )

    def __init__(self, label: str, steering: Steering, rest: Rest, now: float, *, patient: bool = True) -> None:
        """`label`: the destination in words, for `last_error`.

        patient: whether deliveries wait in memory though no attempt has ended of late; else they are parked at once.
        """
        self.label = label
        self.window = feedback.begin(steering)
        self.active = 0
        self.waiting: list[Waiting] = []
        self.recipients = self.octets = 0  # in flight, waiting or not
        self.touched = now
        self.proven = False  # the last attempt that says something about it reached it
        self._patient = patient
        self._steering = steering
        self._rest = rest
        self._why = ""
        self._login_refused = float("-inf")  # when our login was
        self._most = 0  # connections that it takes, as it said when it refused one more
        self._most_until = float("-inf")  # how long that is believed
        self._stands = False  # others need room more than it, and no attempt has ended since
        self._dead_for = rest.first
        self._dead_until = 0.0
        self._gap = 0.0  # mean seconds between two turns while others wait for theirs
        self._turns = 0  # that it is the mean of
        self._last_start = now
        self._last_end = float("-inf")  # when it was reached last
        self._last_parked = now  # when the last one parked is expected to have its turn

    def steer(self, steering: Steering, rest: Rest) -> None:
        """The transport's settings, which may have changed since."""
        self._steering, self._rest = steering, rest
        if self.window.width > steering.limit:
            self.window = self.window._replace(width=steering.limit)

    def offer(self, rank: Rank, recipients: int, octets: int, room: Share, now: float) -> Waiting | Deferral:
        """A place for a delivery, or for how long it is to be parked."""
        self.touched = now
        if (shut := self.shut(now)) is not None:
            return shut
        quick = int(_MOMENTS / self._gap) if self._gap and now - self._last_start < _MOVING else 0
        most = max(room.recipients, min(quick, room.most))
        while self._is_full(recipients, octets, most, room.octets):
            if not self.waiting or self.waiting[-1].rank <= rank:
                return self._park(now)
            self._send_away(self.waiting[-1], self._park(now))
        place = Waiting(self, rank, recipients, octets)
        self.recipients += recipients
        self.octets += octets
        if not self.waiting or self.waiting[-1].rank <= rank:  # mail is mostly claimed in this order
            self.waiting.append(place)
        else:
            insort(self.waiting, place)
        self._advance(now)
        return place

    def shut(self, now: float) -> Deferral | None:
        """For how long to park every delivery: it is dead, or nothing moves and none waits for that; else None."""
        if self.window.dead and (now < self._dead_until or self.active):
            return self._left_alone(now)
        if self._stands:
            return self._park(now)
        # After a pause the first turns of a host that was reached have yet to end.
        moved = max(self._last_end, self._last_start) if self.proven else self._last_end
        if not self._patient and self.active >= max(self.window.width, 1) and now - moved > _MOVING:
            return self._park(now)
        return None

    def give_up(self, place: Waiting, now: float) -> None:
        """It has waited long enough: sent away to come back later, unless its turn came meanwhile."""
        if not place.settled.is_set():
            self._send_away(place, self._park(now))

    def close(self) -> None:
        """All that wait go back untried: the worker stops."""
        while self.waiting:
            place = self.waiting.pop()
            place.closed = True
            self._drop(place)

    def leave(
        self,
        place: Waiting,
        now: float,
        *,
        reached: bool | None = None,
        why: str = "",
        barred: bool = False,
        most: int | None = None,
    ) -> None:
        """The turn is over. reached: whether the destination was, None when the attempt says nothing about it.

        barred: it refused our login, and will every other attempt's, so it needs no more failures to be left alone.
        most: it refused this connection, and serves so many others of ours.
        """
        self.touched = now
        self._stands = False
        self.active -= 1
        self.recipients -= place.recipients
        self.octets -= place.octets
        if most is not None:
            self._most, self._most_until = most, now + _BELIEVED
            self.window = feedback.narrow(self.window, most)
        if reached is True:
            self.window = feedback.succeed(self.window, self.active, self._steering)
            if now < self._most_until:
                self.window = feedback.narrow(self.window, self._most)
            self._dead_for = self._rest.first
            self._last_end, self.proven = now, True
        elif reached is False:
            self.proven = False
            if barred:
                self._login_refused = now
            self.lower(now, why, barred=barred)
        self._advance(now)

    def login_refused(self, now: float) -> bool:
        """Whether mail stays, or stayed until just now, because our login is refused here."""
        return now - self._login_refused < max(_AFTERWARDS, 2 * self._dead_for)  # within that it is tested once more

    def stand(self, now: float) -> None:
        """Others need room more: begin no other attempt until one ends, unless there is none or it was just reached."""
        if self.active and now - self._last_end > _STANDING:
            self._stands = True
            for place in tuple(self.waiting):
                self._send_away(place, self._park(now))

    def lower(self, now: float, why: str, *, barred: bool = False) -> None:
        """An attempt failed by the destination's fault, or a rule says that it is to be treated so."""
        was_dead = self.window.dead
        self.window = feedback.DEAD if barred else feedback.fail(self.window, self._steering)
        if not self.window.dead or (was_dead and now < self._dead_until):
            return  # alive; or what began before it died tells nothing new
        if was_dead:
            self._dead_for = min(2 * self._dead_for, max(self._rest.longest, self._rest.first))
        self._dead_until, self.proven = now + self._dead_for, False
        self._why = f"{'is left alone' if barred else 'does not answer'}: {why}"
        for place in tuple(self.waiting):
            self._send_away(place, self._left_alone(now))

    def retest(self, now: float) -> None:
        """Where it is dead, the next delivery tests it: an operator knows more than the failures before.

        After a refused login the first rest stays, since each try may lock the account.
        """
        if self.window.dead:
            self._dead_until = min(self._dead_until, max(now, self._login_refused + self._rest.first))
            self._last_parked = now

    def forgettable(self, now: float, seconds: float) -> bool:
        """Whether nothing is in flight and what is remembered is older than this, or past its time."""
        remembered = self._dead_until + 2 * self._dead_for if self.window.dead else 0.0
        return not self.recipients and now > max(self.touched + seconds, remembered)

    def _is_full(self, recipients: int, octets: int, most: int, most_octets: int) -> bool:
        """A delivery too large for any room has it alone."""
        return bool(self.recipients) and (self.recipients + recipients > most or self.octets + octets > most_octets)

    def _advance(self, now: float) -> None:
        slots = self.window.width or int(now >= self._dead_until)
        while self.waiting and self.active < slots:
            place = self.waiting.pop(0)
            self.active += 1
            if self.waiting:
                self._turns = min(self._turns + 1, _TURNS)
                self._gap += (now - self._last_start - self._gap) / self._turns
            self._last_start = now
            place.started = True
            place.settled.set()

    def _send_away(self, place: Waiting, until: Deferral) -> None:
        self.waiting.remove(place)
        place.away = until
        self._drop(place)

    def _drop(self, place: Waiting) -> None:
        self.recipients -= place.recipients
        self.octets -= place.octets
        place.settled.set()

    def _park(self, now: float) -> Deferral:
        """Behind the waiting and the parked deliveries, at the recent rate."""
        # A destination that has stood still for longer than its mean is at least that slow.
        gap = max(self._gap, (now - self._last_start) / max(1, self.active), _QUICKEST)
        ahead = max(self._last_parked, now + len(self.waiting) * gap) + gap
        self._last_parked = min(ahead, now + LATEST)
        # Spread, and rather early than late: an early one is parked once more, a late one leaves the destination idle.
        seconds = (self._last_parked - now) * random.uniform(0.7, 1.0)
        reason = f"{how_many(self.active, 'attempt')} under way to {self.label}"
        if self.active and now - self._last_start < _MOVING:
            return Busy(max(_MOMENTS, seconds), reason, self._gap)
        return Deferral(max(SOONEST, seconds), reason)

    def _left_alone(self, now: float) -> Deferral:
        left = max(self._dead_until - now, SOONEST)
        self._last_parked = min(max(self._last_parked, now + left) + _APART, now + LATEST)
        behind = max(0.0, (self._last_parked - now) * random.uniform(0.7, 1.0) - left)
        left += behind + random.uniform(0, min(self._dead_for, _SPREAD))
        return Deferral(left, f"{self.label} {self._why}", stopped="destination")


def room(settings: ClaimSettings) -> Share:
    """How much of what a worker has in flight one destination may hold, and one host as much."""
    return Share(
        max(int(settings.inflight * settings.share), min(settings.inflight, LEAST)),
        int(settings.maxbytes * settings.share),
        settings.inflight * 3 // 4,
    )


def steered(settings: TransportSettings) -> tuple[Steering, Rest]:
    """The steps of a transport's windows, and how long a dead destination is left alone."""
    given = settings.feedback
    first = given.dead or settings.retry.intervals[0]
    return (
        Steering(given.initial, settings.concurrency, given.positive, given.negative, given.cohorts),
        Rest(first.total_seconds(), given.longest.total_seconds()),
    )
