"""attempts — carries each delivery from its place in a destination to its result

Owns: the attempts under way: the turn each waits for, body and signature, the watch over its progress, and what its
    end says about its destination.
Guarantees: every recipient of a delivery that was admitted ends in exactly one way: its result handed to the
    recorder, parked, given back, or left to whoever has claimed it since. Whoever waits in memory for its turn does
    so for `claim.wait` at most. An attempt that gets nowhere for as long as its time limits together allow, or that as
    a whole takes longer than `timeout.attempt`, is cut off (attempt.stuck); where the final dot was out its recipients
    are uncertain. Our own faults neither stop the worker nor lose mail, and never bounce it.
See: queued/destinations/destinations.py; queued/pacing/pace.py; docs/explanation/pacing.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

from queued.deferral import Deferral
from queued.deliver import without_transport
from queued.destinations.destination import Busy
from queued.outcome.ageing import aged
from queued.outcome.settle import deferred
from queued.outcome.verdict import DestinationVerdict, ours, stuck_after, verdict
from queued.pacing.pace import Wait
from queued.smtp.envelope import fields
from queued.tracing import traced
from queued.values import Lease
from queued.watchdog import AttemptStep, Watch
from shared.failure_points import reach
from shared.mail.outcome import Outcome
from shared.observe import events, tracing
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from queued.claiming.bodies import Bodies
    from queued.deliver import Transport
    from queued.destinations.destination import Waiting
    from queued.destinations.destinations import Destinations
    from queued.destinations.unproven import Unproven
    from queued.in_flight import InFlight
    from queued.pacing.pace import Paces, Turn
    from queued.reports.suppression_screen import Screen
    from queued.result import Recorder
    from queued.signing.sign import Signer
    from queued.values import Body, Claimed, Fence, Result
    from shared.config.queued.transport import Transport as TransportSettings

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
    unproven: int = 0  # recipients counted as for a destination that has not been reached of late


class Attempts:
    """The deliveries of a worker that are begun or wait for their turn in memory."""

    def __init__(
        self,
        transports: Mapping[str, Transport],
        destinations: Destinations,
        in_flight: InFlight,
        bodies: Bodies,
        recorder: Recorder,
        signer: Signer,
        paces: Paces,
        patience: float,
        unproven: Unproven,
        screen: Screen | None = None,
    ) -> None:
        """`transports` may change within while this is used. patience: seconds to wait in memory for a turn.

        unproven: what is in flight for destinations that have not been reached of late.
        """
        self._transports = transports
        self._destinations = destinations
        self._in_flight = in_flight
        self._bodies = bodies
        self._recorder = recorder
        self._signer = signer
        self._paces = paces
        self._patience = patience
        self._unproven = unproven
        self._screen = screen
        self.busy = 0  # recipients parked so far for a destination that takes all it may be sent
        self._limits: dict[str, tuple[TransportSettings, float, float]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch = Watch()
        self._patient: deque[tuple[float, Waiting]] = deque()  # who waits in memory, and until when at most
        self._impatience: asyncio.TimerHandle | None = None
        self._lines: dict[tuple[str, ...], int] = {}  # how many stand in each, for a policy

    def admit(self, delivery: Delivery) -> Admitted | None:
        """A place for it, or None when it is parked: there is no room for it, or it must wait."""
        refused = self._in_flight.begin(delivery)
        if refused is not None:
            self._in_flight.park(delivery, refused)
            return None
        place = self._destinations.offer(delivery)
        if isinstance(place, Deferral):
            self.busy += len(delivery) * isinstance(place, Busy)
            self._park(delivery, place)
            return None
        admitted = Admitted(delivery, place)
        if not place.destination.proven:
            now = monotonic()
            crowded = self._unproven.enter(len(delivery), now)
            if crowded is not None:
                self._watch.make_room(now)
                self._leave(admitted)
                self._park(delivery, crowded)
                return None
            admitted.unproven = len(delivery)
        if place.started:  # what a policy stops now needs no body
            shut = self._shut(admitted)
            if shut is not None:
                self._leave(admitted)
                self._park(delivery, shut)
                return None
        return admitted

    def _shut(self, admitted: Admitted) -> Deferral | None:
        """For how long to park what is known now to have to wait; None when it may go on."""
        first = admitted.delivery[0]
        transport = self._transports.get(first.transportid)
        shut = transport.hosts.shut(first.recipient.domain) if transport is not None else None
        if shut is not None:
            return shut._replace(every=0.0)
        asked = self._ask(admitted)
        return self._destinations.paced(asked) if asked is not None and asked.seconds > _AT_ONCE else None

    def begin(self, admitted: Admitted, body: Body | None) -> None:
        """Go on with its body, once that is its turn. None: there is no body any more."""
        running = asyncio.create_task(self._run(admitted, body))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    async def dismiss(self, admitted: Sequence[Admitted]) -> None:
        """Give back what was admitted and will not begin."""
        for each in admitted:
            self._leave(each)
        await self._in_flight.give_back([c for each in admitted for c in each.delivery])

    async def drained(self) -> None:
        """Return when every attempt has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _run(self, admitted: Admitted, body: Body | None) -> None:
        delivery, lease = admitted.delivery, Lease(self._in_flight.expires(admitted.delivery))
        self._in_flight.hold(lease, delivery)
        ended: list[Result] | Deferral | None = None
        said = DestinationVerdict()
        try:
            ended = await self._turn(admitted)
            if ended is None and not admitted.place.closed:
                trying = self._try(admitted, body, lease)
                ended = await (traced(delivery, trying) if tracing.on() else trying)
                if isinstance(ended, list):
                    said = verdict(ended)
        except TimeoutError:
            # Whoever claims the rows next writes the attempt that has no result.
            events.emit("claim.ended", id=delivery[0].message_id, recipients=len(delivery))
            self._in_flight.leave(delivery)
            ended = []
        except Exception as error:  # noqa: BLE001 - our fault must neither stop the worker nor lose mail
            events.emit("daemon.failed", part="attempt", error=repr(error))
            ended = ours(delivery, "internal error")
        finally:
            self._bodies.let_go(delivery[0].size)
            self._in_flight.let_go(lease)
            self._leave(admitted, said, unused=not isinstance(ended, list))
        if ended is None:
            await self._in_flight.give_back(delivery)
        elif isinstance(ended, Deferral):
            self._park(delivery, ended)
        else:
            self._in_flight.messages.finish(delivery[0].message_id, len(ended), monotonic())
            reach("deliver.after_reply")
            self._recorder.add(ended)

    async def _turn(self, admitted: Admitted) -> Deferral | None:
        """Wait for destination and policies; for how long to park it when that takes too long."""
        place = admitted.place
        if not place.settled.is_set():
            self._wait(place)
            await place.settled.wait()
        if place.closed or place.away is not None:
            return place.away
        while (asked := self._ask(admitted)) is not None:
            if asked.seconds > _AT_ONCE:
                return self._destinations.paced(asked)
            await asyncio.sleep(asked.seconds)
        return None

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
            self._destinations.give_up(self._patient.popleft()[1])
        if self._patient:
            loop = asyncio.get_running_loop()
            self._impatience = loop.call_later(self._patient[0][0] - now, self._give_up)

    def _ask(self, admitted: Admitted) -> Wait | None:
        """None once the policies allow it; else how long it takes behind those who wait for the same in memory."""
        if admitted.turn is None:
            self._step_out(admitted)
            asked = self._paces.ask(fields(admitted.delivery[0]))
            if isinstance(asked, Wait):
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

    def _leave(self, admitted: Admitted, said: DestinationVerdict = _NOTHING, *, unused: bool = True) -> None:
        """Give destination and policies back what they gave."""
        self._step_out(admitted)
        if admitted.unproven:
            self._unproven.leave(admitted.unproven, monotonic())
            admitted.unproven = 0
        if admitted.turn is not None:
            admitted.turn.done(unused=unused)
        if admitted.place.started:
            self._destinations.leave(admitted.place, reached=said.reached, why=said.why, barred=said.barred)
        elif not admitted.place.settled.is_set():
            self._destinations.give_up(admitted.place)

    async def _try(self, admitted: Admitted, body: Body | None, lease: Lease) -> list[Result] | Deferral | None:
        """The attempt itself; None when it did not come to one."""
        delivery = admitted.delivery
        transport = self._transports.get(delivery[0].transportid)
        if transport is None:
            return without_transport(delivery)
        if body is None:
            return await self._hold(delivery)
        send = partial(self._send, transport, body, lease, bool(admitted.unproven))
        return await (self._screen.around(delivery, body.content, send) if self._screen else send(delivery))

    async def _send(
        self,
        transport: Transport,
        body: Body,
        lease: Lease,
        unproven: bool,  # noqa: FBT001 - given by position, before the delivery
        delivery: Delivery,
    ) -> list[Result] | Deferral | None:
        """Sign and send; None when it did not come to that."""
        signed = await self._signer.sign(body, delivery[0])
        if signed.fault is not None:
            return ours(delivery, signed.fault)
        limit, whole = self._limit(transport.settings)
        started = monotonic()
        sender = self._screen.sender(delivery[0]) if self._screen is not None else None
        progress = AttemptStep(lease, limit, whole, unproven=unproven)
        self._watch.begin(progress)
        try:
            ended = await transport.attempt(delivery, body, lease, signed.fields, sender=sender)
            return self._destinations.paced(Wait(*ended)) if isinstance(ended, Deferral) and ended.every else ended
        except TimeoutError:
            if not progress.stuck:
                raise  # the lease has ended
        finally:
            self._watch.end(progress)
        phase = progress.phase or "dns"
        events.emit(
            "attempt.stuck", id=delivery[0].message_id, recipients=len(delivery), phase=phase, seconds=progress.seconds
        )
        text = f"{progress.stuck} while waiting for {phase}"
        outcome = Outcome("deferred", "destination", None, "4.4.2", text, uncertain=progress.uncertain)
        duration = timedelta(seconds=monotonic() - started)
        return [deferred(c, outcome, None, duration, transport.settings.retry) for c in delivery]

    def _limit(self, settings: TransportSettings) -> tuple[float, float]:
        """Seconds without a step, and in all, after which an attempt is stuck; kept, for every attempt asks."""
        known = self._limits.get(settings.id)
        if known is None or known[0] is not settings:
            known = self._limits[settings.id] = settings, *stuck_after(settings)
        return known[1:]

    async def _hold(self, delivery: Delivery) -> list[Result]:
        """Recipients without a body go on hold, since no further try could send them; results of those that did not."""
        for c in delivery:
            events.emit("body.missing", id=c.message_id, recipient_id=c.id)
        held: set[Fence] = set()
        try:
            held = await self._bodies.hold_missing(delivery)
        except (*database.OUTAGE, *database.REFUSAL) as error:
            events.emit("claim.failed", error=error, seconds=0.0)
        self._in_flight.leave([c for c in delivery if (c.id, c.token) in held])
        return ours([c for c in delivery if (c.id, c.token) not in held], "the message has no body")

    def _park(self, delivery: Delivery, until: Deferral) -> None:
        """Let these come back later, without a try; what has grown too old for that has its result."""
        transport = self._transports.get(delivery[0].transportid)
        if transport is not None:
            old, delivery, until = aged(delivery, until, transport.settings.retry, tells=self._recorder.tells)
            if old:
                self._in_flight.messages.finish(old[0].claimed.message_id, len(old), monotonic())
                self._recorder.add(old)
        if delivery:
            self._in_flight.park(delivery, until)
