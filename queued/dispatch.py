"""dispatch — claims what there is room for and starts an attempt for each message

Owns: the loop claim → group by message and way → fetch bodies → attempt, and the number of recipients in hand.
Called by: queued.daemon.
Guarantees: never more recipients claimed than `claim.inflight`. No recipient in hand is claimed again when its lease
    may have ended: its result comes first, after however long an outage. Waits for a notification, a due time or the
    poll interval, whichever is first. Stopping claims nothing more, gives back what no attempt has begun, and waits
    for the rest.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from queued.claim import Lease
from queued.deliver import without_transport
from queued.result import Recorder, Result
from queued.sign import Signer
from shared import database, events
from shared.outcome import Outcome
from shared.signing_config import Signing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from queued.bodies import Bodies
    from queued.claim import Claimed, Claimer
    from queued.deliver import Body, Transport
    from shared.queued_config import Claim as ClaimSettings

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
# Bodies are fetched this many messages at a time: enough to spare round trips, few enough to start soon.
_FETCH = 50
_GIVE_BACK = 5  # tries against whoever moves one of the rows meanwhile

type Delivery = tuple[Claimed, ...]


class Dispatcher:
    """The heart of a worker."""

    def __init__(
        self,
        pool: database.Pool,
        claimer: Claimer,
        bodies: Bodies,
        transports: Mapping[str, Transport],
        recorder: Recorder,
        settings: ClaimSettings,
        signer: Signer | None = None,
    ) -> None:
        self._pool = pool
        self._claimer = claimer
        self._bodies = bodies
        self._transports = transports
        self._recorder = recorder
        self._settings = settings
        self._signer = signer or Signer(Signing())
        self._attempts: dict[asyncio.Task[None], tuple[Delivery, Lease]] = {}
        # Everything in hand, with the monotonic time its lease ends: what waits for a body or for its result to be
        # recorded needs its lease as much as what is being sent.
        self._hand: dict[Claimed, float] = {}
        self._passed_over = False  # the last claim left out what is in hand
        recorder.on_recorded = self._left
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self.due = asyncio.Event()

    @property
    def inflight(self) -> int:
        """Recipients in hand: claimed, and neither recorded nor given back."""
        return len(self._hand)

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopping.set()
        self.due.set()
        self._room.set()

    def start_over(self) -> None:
        """Look at everything that is due, now: notifications may have gone unheard."""
        self._claimer.start_over()
        self.due.set()

    async def drained(self) -> None:
        """Return when claiming has ended and every attempt with it."""
        await self._idle.wait()
        while self._attempts:
            await asyncio.wait(self._attempts)

    async def run(self) -> None:
        """Claim and start attempts until stopped; then wait to be cancelled."""
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            self._room.clear()
            free = min(self._settings.batch, self._settings.inflight - self.inflight)
            # A claim costs the same for one row as for many: wait until a good part of a batch fits.
            if free * 4 < min(self._settings.batch, self._settings.inflight):
                await self._room.wait()
                continue
            try:
                self.due.clear()
                claimed = await self._claim(free)
                pause = _FIRST_PAUSE
            except database.CONFLICT:
                continue  # somebody held or released one of the rows at that moment
            except (*database.OUTAGE, *database.REFUSAL) as error:
                events.emit("claim.failed", error=error, seconds=pause)
                await _rest(self.due, pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            await self._start(claimed)
            if len(claimed) < free:
                await self._wait_for_mail()
        self._idle.set()
        await asyncio.Event().wait()

    async def _claim(self, limit: int) -> list[Claimed]:
        async with self._pool.connection() as connection:
            # After an outage: PostgreSQL takes these for due, while we hold their results and only have to record them.
            near = monotonic() + self._settings.lease.total_seconds() / 3
            late = {c.id for c, expires in self._hand.items() if expires < near}
            if late:
                self._recorder.hurry()
                self._passed_over = True
            claimed = await self._claimer.take(connection, limit, late)
        self._hand.update((c, c.expires) for c in claimed)
        return claimed

    async def _wait_for_mail(self) -> None:
        """Until a wake-up, the next due time or the poll interval."""
        if self.due.is_set():
            return
        try:
            async with self._pool.connection() as connection:
                wait = await self._claimer.until_due(connection)
        except (*database.OUTAGE, *database.REFUSAL):
            wait = _LONGEST_PAUSE
        await _rest(self.due, min(wait, self._settings.poll.total_seconds()))

    async def _start(self, claimed: list[Claimed]) -> None:
        """Fetch bodies in portions and start an attempt for each message; what is not begun when stopping goes back."""
        deliveries = self._grouped(claimed)
        while deliveries and not self._stopping.is_set():
            portion = deliveries[:_FETCH]
            size = sum(delivery[0].size for delivery in portion)
            while len(portion) > 1 and size > self._settings.maxbytes // 4:
                size -= portion.pop()[0].size
            await self._bodies.reserve(size)
            try:
                bodies = await self._bodies.fetch([delivery[0].message_id for delivery in portion])
            except (*database.OUTAGE, *database.REFUSAL) as error:
                self._bodies.let_go(size)
                events.emit("claim.failed", error=error, seconds=_FIRST_PAUSE)
                await _rest(self._stopping, _FIRST_PAUSE)  # no news of other mail brings these bodies
                continue
            del deliveries[: len(portion)]
            for delivery in portion:
                lease = Lease(min(self._hand[c] for c in delivery))
                attempt = asyncio.create_task(self._attempt(delivery, bodies.get(delivery[0].message_id), lease))
                self._attempts[attempt] = delivery, lease
                attempt.add_done_callback(self._attempts.pop)
        await self._give_back([c for delivery in deliveries for c in delivery])

    def _grouped(self, claimed: Iterable[Claimed]) -> list[Delivery]:
        """Recipients of one message who go the same way share an SMTP transaction, up to the transport's limit."""
        groups: dict[tuple[object, str, str], list[Claimed]] = {}
        for c in claimed:
            transport = self._transports.get(c.transportid)
            way = transport.lane(c.recipient.domain) if transport else ""
            groups.setdefault((c.message_id, c.transportid, way), []).append(c)
        deliveries = []
        for (_, transportid, _), group in groups.items():
            transport = self._transports.get(transportid)
            limit = transport.settings.recipients if transport else len(group)
            deliveries += [tuple(group[i : i + limit]) for i in range(0, len(group), limit)]
        return deliveries

    async def _attempt(self, delivery: Delivery, body: Body | None, lease: Lease) -> None:
        results: list[Result] | None
        try:
            transport = self._transports.get(delivery[0].transportid)
            if transport is None:
                results = without_transport(delivery)
            elif body is None:
                results = await self._hold(delivery)
            else:
                signed = await self._signer.sign(body, delivery[0])
                if signed.fault is None:
                    results = await transport.attempt(delivery, body, lease, signed.fields)
                else:
                    results = _ours(delivery, signed.fault)
        except TimeoutError:
            # Whoever claims the rows next writes the attempt that has no result.
            events.emit("claim.ended", id=delivery[0].message_id, recipients=len(delivery))
            self._left(delivery)
            results = []
        except Exception as error:  # noqa: BLE001 - our fault must neither stop the worker nor lose mail
            events.emit("daemon.failed", part="attempt", error=repr(error))
            results = _ours(delivery, "internal error")
        finally:
            self._bodies.let_go(delivery[0].size)
        if results is None:
            await self._give_back(delivery)
        else:
            self._recorder.add(results)

    async def _hold(self, delivery: Delivery) -> list[Result]:
        """Recipients without a body go on hold, since no further try could send them; results of those that did not."""
        for c in delivery:
            events.emit("body.missing", id=c.message_id, recipient_id=c.id)
        held: set[int] = set()
        try:
            held = await self._bodies.hold_missing(delivery)
        except (*database.OUTAGE, *database.REFUSAL) as error:
            events.emit("claim.failed", error=error, seconds=0.0)
        self._left([c for c in delivery if c.id in held])
        return _ours([c for c in delivery if c.id not in held], "the message has no body")

    async def heartbeat(self) -> None:
        """Put the end of leases off while attempts go on, until cancelled. A lease that is lost ends its attempt."""
        lease = self._settings.lease.total_seconds()
        while True:
            await asyncio.sleep(lease / 6)
            old = [c for c, expires in self._hand.items() if expires - monotonic() < lease * 2 / 3]
            if not old:
                continue
            started = monotonic()
            try:
                async with asyncio.timeout(lease / 6), self._pool.connection() as connection:
                    ours = await self._claimer.extend(connection, old)
            except (*database.OUTAGE, *database.REFUSAL) as error:
                # The attempts go on until their lease ends; the next beat may come through.
                events.emit("claim.failed", error=error, seconds=lease / 6)
                continue
            for c in old:
                if c in self._hand and ours.get(
                    c.id, True
                ):  # else somebody has it locked: its lease ends when it ended
                    self._hand[c] = started + lease if c.id in ours else started
            for delivery, held in self._attempts.values():
                held.put_off(min(self._hand.get(c, started) for c in delivery))

    async def _give_back(self, claimed: Sequence[Claimed]) -> None:
        """As if they had not been claimed. If PostgreSQL is away, their lease gives them back."""
        if not claimed:
            return
        try:
            for _ in range(_GIVE_BACK):
                try:
                    async with self._pool.connection() as connection:
                        await self._claimer.give_back(connection, claimed)
                    break
                except database.CONFLICT:
                    continue  # somebody held one of the rows at that moment
        except (*database.OUTAGE, *database.REFUSAL) as error:
            events.emit("claim.failed", error=error, seconds=0.0)
        self._left(claimed)

    def _left(self, claimed: Sequence[Claimed]) -> None:
        for c in claimed:
            self._hand.pop(c, None)
        self._room.set()
        if self._passed_over:
            self._passed_over = False
            self.start_over()
        if self._claimer.done(claimed):
            self.due.set()


async def _rest(until: asyncio.Event, seconds: float) -> None:
    """Until the event or for so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()


def _ours(delivery: Sequence[Claimed], text: str) -> list[Result]:
    """A deferral that is our own fault: the operator has time to mend it, nothing is given up."""
    outcome = Outcome("deferred", "us", None, "4.3.5", text)
    return [Result.later(c, outcome, timedelta(minutes=5)) for c in delivery]
