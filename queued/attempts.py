"""attempts — carries each delivery from its place in a destination to its result

Owns: the attempts under way: body and signature, the watch over progress, and what the end says about the destination.
Guarantees: every recipient of a delivery that was admitted ends in exactly one way: its result handed to the
    recorder, parked, given back, or left to the worker that has claimed it since. An attempt that gets nowhere for
    as long as its time limits together allow, or that as a whole takes longer than `timeout.attempt`, is cut off
    (attempt.stuck); where the final dot was out its recipients are uncertain. Our own faults neither stop the worker
    nor lose mail, and never bounce it.
See: queued/admission/gates.py, what comes before; docs/explanation/pacing.md.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from queued.deliver import without_transport
from queued.outcome.ageing import aged
from queued.outcome.own_login import note
from queued.outcome.settle import DestinationVerdict, deferred, ours, stuck_after, verdict
from queued.smtp import line_length
from queued.values import Lease
from queued.waiting.deferral import Deferral
from queued.waiting.watchdog import AttemptStep
from shared.failure_points import reach
from shared.mail.outcome import Outcome
from shared.observe import events, tracing
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from queued.admission.gates import Admission, Admitted, Delivery
    from queued.claiming.bodies import Bodies
    from queued.deliver import Transport
    from queued.in_flight import InFlight
    from queued.reports.suppression_screen import Screen
    from queued.result import Recorder
    from queued.signing.sign import Signer
    from queued.values import Body, Claimed, Fence, Result
    from queued.waiting.watchdog import Watch
    from shared.config.queued.transport import Transport as TransportSettings


class Attempts:
    """The deliveries of a worker that are begun or wait for their turn in memory."""

    def __init__(
        self,
        transports: Mapping[str, Transport],
        admission: Admission,
        in_flight: InFlight,
        bodies: Bodies,
        recorder: Recorder,
        signer: Signer,
        watch: Watch,
        screen: Screen | None = None,
    ) -> None:
        """`transports` may change within while this is used. watch: over the progress of attempts."""
        self._transports = transports
        self.admission = admission
        self._in_flight = in_flight
        self._bodies = bodies
        self._recorder = recorder
        self.signer = signer  # another one after a reload
        self._watch = watch
        self._screen = screen
        self._limits: dict[str, tuple[TransportSettings, float, float]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def admit(self, delivery: Delivery, follow: int) -> Admitted | None:
        """Give the delivery a place; None if it was parked instead.

        follow: how many newer recipients may be due.
        """
        refused = self._in_flight.begin(delivery)
        if refused is not None:
            self._in_flight.park(delivery, refused)
            return None
        admitted = self.admission.admit(delivery, follow=follow)
        if isinstance(admitted, Deferral):
            self._park(delivery, admitted)
            return None
        return admitted

    def may_begin(self, admitted: Admitted) -> bool:
        """Whether it may begin beside the mail that flows; if not, it was parked instead."""
        until = self.admission.put_off(admitted)
        if until is not None:
            self._park(admitted.delivery, until)
        return until is None

    def begin(self, admitted: Admitted, body: Body | None) -> None:
        """Go on with its body, once that is its turn. None: there is no body any more."""
        running = asyncio.create_task(self._run(admitted, body))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    async def dismiss(self, admitted: Sequence[Admitted]) -> None:
        """Give back what was admitted and will not begin."""
        for each in admitted:
            self.admission.leave(each)
        await self._in_flight.give_back([c for each in admitted for c in each.delivery])

    def relieve(self) -> None:
        """Nothing can be claimed: end the attempts that stand still, or set them aside, and give others the room."""
        self.admission.destinations.stand_still()
        self._watch.relieve(monotonic())

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
            ended = await self.admission.turn(admitted)
            if ended is None and not admitted.place.closed:
                trying = self._try(admitted, body, lease)
                ended = await (_traced(delivery, trying) if tracing.on() else trying)
                if isinstance(ended, list):
                    said = verdict(ended)
        except TimeoutError:
            # The next worker that claims the rows writes the attempt that has no result.
            events.emit("claim.ended", id=delivery[0].message_id, recipients=len(delivery))
            self._in_flight.leave(delivery)
            ended = []
        except Exception as error:  # noqa: BLE001 - our fault must neither stop the worker nor lose mail
            events.emit("daemon.failed", part="attempt", error=repr(error))
            ended = ours(delivery, "internal error")
        finally:
            if admitted.aside:
                self._in_flight.aside.leave(len(delivery), delivery[0].size)
            else:
                self._bodies.let_go(delivery[0].size)
            self._in_flight.let_go(lease)
            self.admission.leave(admitted, said, unused=not isinstance(ended, list))
        if ended is None:
            await self._in_flight.give_back(delivery)
        elif isinstance(ended, Deferral):
            self._park(delivery, ended)
        else:
            self._in_flight.messages.finish(delivery[0].message_id, len(ended), monotonic())
            reach("deliver.after_reply")
            self._recorder.add(ended)

    async def _try(self, admitted: Admitted, body: Body | None, lease: Lease) -> list[Result] | Deferral | None:
        """The attempt itself; None when it did not come to one."""
        delivery = admitted.delivery
        transport = self._transports.get(delivery[0].transportid)
        if transport is None:
            return without_transport(delivery)
        if body is None:
            return await self._hold(delivery)
        send = partial(self._send, transport, body, lease, admitted)
        return await (self._screen.around(delivery, body.content, send) if self._screen else send(delivery))

    async def _send(
        self,
        transport: Transport,
        body: Body,
        lease: Lease,
        admitted: Admitted,
        delivery: Delivery,
    ) -> list[Result] | Deferral | None:
        """Sign and send; None when it did not come to that."""
        body = await line_length.within(body, transport.settings.maxlinelength)
        signed = await self.signer.sign(body, delivery[0])
        if signed.fault is not None:
            return ours(delivery, signed.fault)
        limit, whole = self._limit(transport.settings)
        started = monotonic()
        sender = self._screen.sender(delivery[0]) if self._screen is not None else None
        held = admitted.unproven
        progress = AttemptStep(
            *(lease, limit, whole),
            unproven=None if held is None else "first" if held.first else "again",
            stands=partial(self._set_aside, admitted),
            yields=partial(self.admission.count_no_more, admitted),
        )
        self._watch.begin(progress)
        try:
            ended = await transport.attempt(delivery, body, lease, signed.fields, sender=sender)
            return self.admission.destinations.paced(ended) if isinstance(ended, Deferral) and ended.of else ended
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
        if progress.starved:
            self.admission.destinations.shut(admitted.place, text)
        outcome = Outcome("deferred", "destination", None, "4.4.2", text, uncertain=progress.uncertain)
        duration = timedelta(seconds=monotonic() - started)
        return [
            deferred(c, note(outcome), None, duration, transport.settings.retry, kept=True)
            if self._waits_for_login(transport, c)
            else deferred(c, outcome, None, duration, transport.settings.retry)
            for c in delivery
        ]

    def _set_aside(self, admitted: Admitted) -> None:
        """Its host has content of ours and stands still: do not count it for a while, and send the host no more."""
        self.admission.destinations.stand(admitted.place)
        size = admitted.delivery[0].size
        if not admitted.aside and self._in_flight.aside.take(len(admitted.delivery), size):
            self.admission.set_aside(admitted)
            self._bodies.let_go(size)
            self._in_flight.room.set()

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
            events.emit("claim.failed", error=error, seconds=0.0, away=database.is_away(error))
        self._in_flight.leave([c for c in delivery if (c.id, c.token) in held])
        return ours([c for c in delivery if (c.id, c.token) not in held], "the message has no body")

    def _waits_for_login(self, transport: Transport, c: Claimed) -> bool:
        """Whether it stays for our own login; what is known of the way outlives a reload that corrects it.

        What its row says outlives this worker.
        """
        if transport.login_refused(c.recipient.domain):
            return True
        return transport.login_is_ours and (c.login_refused or self.admission.destinations.login_refused(c))

    def _park(self, delivery: Delivery, until: Deferral) -> None:
        """Let these come back later, without a try; what has grown too old for that has its result."""
        transport = self._transports.get(delivery[0].transportid)
        if transport is not None:
            old, delivery, until = aged(
                *(delivery, until, transport.settings.retry),
                may_notify=self._recorder.may_notify,
                kept=partial(self._waits_for_login, transport),
            )
            if old:
                self._in_flight.messages.finish(old[0].claimed.message_id, len(old), monotonic())
                self._recorder.add(old)
        if delivery:
            self._in_flight.park(delivery, until)


async def _traced[T](delivery: Sequence[Claimed], attempt: Awaitable[T]) -> T:
    """The result of the attempt, which is one span in the trace of its message, however many recipients it has."""
    c = delivery[0]
    attributes = {
        "pillarbox.id": c.message_id,
        "pillarbox.transport": c.transportid,
        "pillarbox.try": c.retry_count,
        "pillarbox.recipients": len(delivery),
    }
    with tracing.begin("queued.attempt", attributes, parent=c.metadata.get(tracing.KEY)) as span:
        ended = await attempt
        if isinstance(ended, list) and ended:
            kinds = sorted({result.outcome.kind for result in ended})
            span.set({"pillarbox.outcome": " ".join(kinds), "server.address": ended[0].remote})
        return ended
