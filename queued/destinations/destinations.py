"""destinations — a worker's deliveries in flight by destination, and its knowledge of each destination

Owns: the destinations, one for each transport and way: making, forgetting, and the return of parked deliveries.
Guarantees: no await. One destination holds at most `claim.share` of `claim.inflight` and of `claim.maxbytes`, unless
    that is fewer than a hundred recipients: the rest is parked, so that mail of other destinations is claimed. The
    state of a dead destination is kept for as long as it matters; thousands of others cost nothing once their mail is
    gone. One that sends all it holds within a quarter of a second may hold three quarters.
See: queued/destinations/destination.py; shared/config/queued/feedback.py.
"""

from __future__ import annotations

import heapq
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from queued.destinations.destination import Busy, Destination, Rest, Waiting
from queued.destinations.feedback import Steering
from queued.waiting.deferral import LATEST, SOONEST, Deferral
from shared.postgres.presence import InHand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from queued.values import Claimed
    from shared.config.queued.settings import Claim as ClaimSettings
    from shared.config.queued.transport import Transport as TransportSettings
from queued.destinations.destination import room, steered

_REMEMBERED: Final = 60.0  # seconds a destination is kept after its last delivery
_SWEEP: Final = 1000  # destinations at which those to forget are first looked for
_UNKNOWN: Final = Steering()  # of a transport that queued.yaml does not have: no host is asked


class Reaches(Protocol):
    """The part of a transport that is used here: queued.deliver.Transport."""

    settings: TransportSettings

    def way(self, domain: str) -> str:
        """The name of the way to this domain; those with one name share connections."""


class Destinations:
    """Every destination of a worker."""

    def __init__(
        self, transports: Mapping[str, Reaches], settings: ClaimSettings, clock: Callable[[], float] = monotonic
    ) -> None:
        """`transports` may change within while this is used."""
        self._transports = transports
        self._room = room(settings)
        self._clock = clock
        self._destinations: dict[tuple[str, str], Destination] = {}
        self._steered: dict[str, tuple[TransportSettings, Steering, Rest]] = {}
        # By the reason to wait: when the last delivery that waits for it may have its turn.
        self._paced: dict[tuple[str, ...], float] = {}
        self._paced_sweep_at = _SWEEP
        self._sweep_at = _SWEEP
        self.full: dict[Destination, float] = {}  # without room for what was offered; seconds between two turns

    def __len__(self) -> int:
        return len(self._destinations)

    def offer(self, delivery: Sequence[Claimed]) -> Waiting | Deferral:
        """A place for a delivery, all of one way, or for how long it is to be parked."""
        first, now = delivery[0], self._clock()
        transport = self._transports.get(first.transportid)
        if transport is None:
            destination = Destination(first.transportid, _UNKNOWN, Rest(1.0, 1.0), now)
        else:
            destination = self._destination(transport, first.recipient.domain, now)
        urgency = (first.priority < 0) - (first.priority > 0)
        place = destination.offer((urgency, first.id), len(delivery), first.size, self._room, now)
        if isinstance(place, Busy):
            self.full[destination] = place.every
        return place

    def give_up(self, place: Waiting) -> None:
        """It has waited in memory for long enough."""
        place.destination.give_up(place, self._clock())

    def leave(self, place: Waiting, *, reached: bool | None, why: str = "", barred: bool = False) -> None:
        """A turn is over; `reached` and `barred` as queued.destinations.destination has them."""
        place.destination.leave(place, self._clock(), reached=reached, why=why, barred=barred)

    def login_refused(self, recipient: Claimed) -> bool:
        """Whether the way of this recipient's mail refuses our login, or did until just now."""
        transport = self._transports.get(recipient.transportid)
        if transport is None:
            return False
        known = self._destinations.get((transport.settings.id, transport.way(recipient.recipient.domain)))
        return known is not None and known.login_refused(self._clock())

    def lower(self, transport: str, destination: str) -> None:
        """Treat mail for a domain as if an attempt had failed by the destination's fault: what a rule asks for."""
        known = self._transports.get(transport)
        if known is not None:
            now = self._clock()
            self._destination(known, destination, now).lower(now, "a rule of queued.yaml lowers it")

    def retest(self) -> None:
        """Let the next delivery to each dead destination test it."""
        now = self._clock()
        for destination in self._destinations.values():
            destination.retest(now)

    def shut(self, place: Waiting, why: str) -> None:
        """Leave a destination alone at once: its attempts are stalled while the worker cannot claim more."""
        place.destination.lower(self._clock(), why, barred=True)

    def stand(self, place: Waiting) -> None:
        """An attempt at it is stalled after content, and the worker needs slots."""
        place.destination.stand(self._clock())

    def stand_still(self) -> None:
        """The worker can claim nothing: what becomes free is for destinations that have nothing under way, or move."""
        now = self._clock()
        for destination in self._destinations.values():
            destination.stand(now)

    def paced(self, wait: Deferral) -> Deferral:
        """For how long to park what a policy lets wait, so that all of them do not come back at the same moment."""
        if not wait.every:  # all may go at that moment
            return Deferral(max(wait.seconds, SOONEST), wait.reason, stopped=wait.stopped)
        now = self._clock()
        if len(self._paced) >= self._paced_sweep_at:
            self._paced = {line: until for line, until in self._paced.items() if until > now}
            self._paced_sweep_at = max(_SWEEP, 2 * len(self._paced))
        line = wait.reason, *wait.of
        turn = min(max(self._paced.get(line, 0.0) + wait.every, now + wait.seconds), now + max(LATEST, wait.seconds))
        self._paced[line] = turn
        return Deferral(max(turn - now, SOONEST), wait.reason)

    def busiest(self, most: int) -> list[InHand]:
        """So many destinations at most that do not answer or have something in hand: those with most trouble first."""
        known = (
            InHand(each.label, each.active, each.window.width, len(each.waiting))
            for each in self._destinations.values()
            if each.recipients or each.window.dead
        )
        return heapq.nsmallest(most, known, key=lambda each: (each.allowed > 0, -each.waiting, -each.attempts))

    def close(self) -> None:
        """All that wait go back: the worker stops."""
        for destination in self._destinations.values():
            destination.close()

    def _destination(self, transport: Reaches, domain: str, now: float) -> Destination:
        steering, rest = self._steering(transport.settings)
        way = transport.way(domain)
        destination = self._destinations.get((transport.settings.id, way))
        if destination is None:
            if len(self._destinations) >= self._sweep_at:
                self._destinations = {
                    k: known for k, known in self._destinations.items() if not known.forgettable(now, _REMEMBERED)
                }
                self._sweep_at = max(_SWEEP, 2 * len(self._destinations))
            label = way.partition(" ")[2] or f"transport {transport.settings.id}"
            destination = self._destinations[transport.settings.id, way] = Destination(label, steering, rest, now)
        else:
            destination.steer(steering, rest)
        return destination

    def _steering(self, settings: TransportSettings) -> tuple[Steering, Rest]:
        known = self._steered.get(settings.id)
        if known is None or known[0] is not settings:
            known = self._steered[settings.id] = settings, *steered(settings)
        return known[1], known[2]
