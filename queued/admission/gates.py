"""admission — what a delivery passes before its attempt begins: its destination, and the policies

Owns: the order of the gates, and the deliveries that wait in memory.
Guarantees: each gate answers now, lets the delivery wait in memory for `claim.wait` at most, or says for how long to
    park it; the answer is always a Deferral. What a gate gave is given back exactly once, by `leave`. The gates
    that need to know the hosts follow in the attempt (queued/deliver.py).
See: docs/explanation/admission.md, the table of gates.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from queued.admission.unproven import Held
from queued.destinations.destination import Busy
from queued.outcome.settle import DestinationVerdict
from queued.pacing.match import Fields
from queued.waiting.deferral import Deferral
from queued.waiting.watchdog import MOMENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from queued.admission.unproven import Unproven
    from queued.deliver import Transport
    from queued.destinations.destination import Waiting
    from queued.destinations.destinations import Destinations
    from queued.pacing.pace import Paces, Turn
    from queued.values import Claimed
    from queued.waiting.watchdog import Watch
    from shared.config.queued.settings import Claim as ClaimSettings

_AT_ONCE: Final = 1.0  # seconds that a turn is kept while a policy lets its delivery wait; beyond them it is parked
_NOTHING: Final = DestinationVerdict()

type Delivery = tuple[Claimed, ...]


@dataclass(slots=True, eq=False)
class Admitted:
    """A delivery that has its place: what it needs next is its body."""

    delivery: Delivery
    place: Waiting
    turn: Turn | None = None
    line: tuple[str, ...] = ()  # in which it stands in memory, for a policy
    unproven: Held | None = None  # counted as for a destination that has not been reached of late
    aside: bool = False  # it stands still after content, and is not counted (queued/in_flight.py)


class Admission:
    """The gates of a worker that need no more than the recipient's address."""

    def __init__(
        self,
        transports: Mapping[str, Transport],
        destinations: Destinations,
        paces: Paces,
        watch: Watch,
        unproven: Unproven,
        settings: ClaimSettings,
    ) -> None:
        """`transports` may change within while this is used. watch: what makes room when too much stands still.

        unproven: counts what is in flight for destinations that have not been reached of late.
        """
        self._transports = transports
        #: What is known of each; the dispatcher reads which are full.
        self.destinations = destinations
        self._paces = paces
        self._watch = watch
        self._patience = settings.wait.total_seconds()  # in memory, for a turn
        self._unproven = unproven
        self.busy = 0  # recipients refused so far by a destination that takes all it may be sent
        self._patient: deque[tuple[float, Waiting]] = deque()  # those that wait in memory, and until when at most
        self._impatience: asyncio.TimerHandle | None = None
        self._lines: dict[tuple[str, ...], int] = {}  # how many wait for each policy in memory

    def deliveries(self, claimed: Iterable[Claimed]) -> list[Delivery]:
        """Recipients of one message who go the same way share an SMTP transaction, up to the transport's limit."""
        groups: dict[tuple[object, ...], list[Claimed]] = {}
        apart = self._paces.by_destination
        for c in claimed:
            transport = self._transports.get(c.transportid)
            way = transport.way(c.recipient.domain) if transport else ""
            domain = c.recipient.domain.lower() if apart else ""
            groups.setdefault((c.message_id, c.transportid, way, domain), []).append(c)
        deliveries = list[Delivery]()
        for group in groups.values():
            transport = self._transports.get(group[0].transportid)
            limit = transport.settings.recipients if transport else len(group)
            deliveries += [tuple(group[i : i + limit]) for i in range(0, len(group), limit)]
        return deliveries

    def admit(self, delivery: Delivery, *, follow: int = 0) -> Admitted | Deferral:
        """A place for it, or for how long it is to be parked. follow: how many newer recipients may be due."""
        place = self.destinations.offer(delivery)
        if isinstance(place, Deferral):
            self.busy += len(delivery) * isinstance(place, Busy)
            return place
        admitted = Admitted(delivery, place)
        # What is stopped now needs no body.
        if place.started and (shut := self._shut(delivery[0], follow=follow)) is not None:
            self.leave(admitted)
            return shut
        if not place.destination.proven:
            wanted, now = _wanted(delivery), monotonic()
            if not self._has_room(wanted, now):
                self.leave(admitted)
                return self._unproven.parked(wanted, now, follow=follow)
            admitted.unproven = wanted
        if place.started and (asked := self._ask(admitted)) is not None and asked.seconds > _AT_ONCE:
            self.leave(admitted)
            return self.destinations.paced(asked)
        return admitted

    def put_off(self, admitted: Admitted) -> Deferral | None:
        """For how long to park what may not begin yet, since it is mostly in vain and other mail flows; else None."""
        held, now = admitted.unproven, monotonic()
        if held is None or admitted.place.destination.proven or _came_just_now(admitted.delivery):
            return None
        if self._unproven.may_begin(now):
            return None
        self.leave(admitted)
        return self._unproven.parked(held, now)

    async def turn(self, admitted: Admitted) -> Deferral | None:
        """Wait for destination and policies; for how long to park it when that takes too long."""
        place = admitted.place
        if not place.settled.is_set():
            self._wait(place)
            await place.settled.wait()
        if place.closed or place.away is not None:
            return place.away
        while (asked := self._ask(admitted)) is not None:
            if asked.seconds > _AT_ONCE:
                return self.destinations.paced(asked)
            await asyncio.sleep(asked.seconds)
        return None

    def leave(self, admitted: Admitted, said: DestinationVerdict = _NOTHING, *, unused: bool = True) -> None:
        """Give destination and policies back what they gave."""
        self._step_out(admitted)
        if said.reached:
            if admitted.unproven is not None:
                self._unproven.reached(monotonic())
            else:
                self._unproven.delivered(monotonic())
        self.count_no_more(admitted)
        if admitted.turn is not None:
            admitted.turn.done(unused=unused)
        if admitted.place.started:
            self.destinations.leave(admitted.place, reached=said.reached, why=said.why, barred=said.barred)
        elif not admitted.place.settled.is_set():
            self.destinations.give_up(admitted.place)

    def set_aside(self, admitted: Admitted) -> None:
        """It is not counted any more."""
        admitted.aside = True
        self.count_no_more(admitted)

    def count_no_more(self, admitted: Admitted) -> None:
        """It gives its place among unproven destinations back, if it has one."""
        if admitted.unproven is not None:
            self._unproven.leave(admitted.unproven, monotonic())
            admitted.unproven = None

    def _has_room(self, wanted: Held, now: float) -> bool:
        """Count them among unproven destinations, for which others may have to be cut off; whether that could be."""
        if self._unproven.enter(wanted, now):
            return True
        chances = self._unproven.chances(wanted, now)
        if chances is None:
            return False
        # Asked once: for several recipients several give way, or none would be gained by those that did.
        while self._watch.make_room(now, again=self._unproven.has_no_room(wanted)):
            chances.take()
            if self._unproven.enter(wanted, now):
                return True
        return False

    def _shut(self, first: Claimed, *, follow: int) -> Deferral | None:
        """For how long to park what hosts or DNS stop now; None when it may go on."""
        transport = self._transports.get(first.transportid)
        return None if transport is None else transport.shut(first.recipient.domain, follow=follow)

    def _wait(self, place: Waiting) -> None:
        """It is given up when its turn has not come in time; all have the same patience, so one timer serves them."""
        while self._patient and self._patient[0][1].settled.is_set():
            self._patient.popleft()
        self._patient.append((monotonic() + self._patience, place))
        if self._impatience is None:
            self._impatience = asyncio.get_running_loop().call_later(self._patience, self._give_up)

    def _give_up(self) -> None:
        """Those whose time is over, or who wait no more; and look again when the next one's will be."""
        self._impatience = None
        now = monotonic()
        while self._patient and (self._patient[0][0] <= now or self._patient[0][1].settled.is_set()):
            self.destinations.give_up(self._patient.popleft()[1])
        if self._patient:
            loop = asyncio.get_running_loop()
            self._impatience = loop.call_later(self._patient[0][0] - now, self._give_up)

    def _ask(self, admitted: Admitted) -> Deferral | None:
        """None once the policies allow it; else how long it takes behind those who wait for the same in memory."""
        if admitted.turn is None:
            self._step_out(admitted)
            asked = self._paces.ask(Fields.of(admitted.delivery[0]))
            if isinstance(asked, Deferral):
                admitted.line = asked.reason, *asked.of
                ahead = self._lines.get(admitted.line, 0)
                self._lines[admitted.line] = ahead + 1
                return asked._replace(seconds=asked.seconds + ahead * asked.every)
            admitted.turn = asked
        return None

    def _step_out(self, admitted: Admitted) -> None:
        """It stands in no line any more."""
        line, admitted.line = admitted.line, ()
        if line:
            self._lines[line] -= 1
            if not self._lines[line]:
                del self._lines[line]


def _came_just_now(delivery: Delivery) -> bool:
    first = delivery[0]
    return first.retry_count <= 1 and (first.now() - first.received).total_seconds() < MOMENT


def _wanted(delivery: Delivery) -> Held:
    """Its places among unproven destinations."""
    first, newest = all(c.retry_count <= 1 for c in delivery), max(c.id for c in delivery)
    return Held(len(delivery), first, newest, delivery[0].size)
