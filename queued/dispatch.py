"""dispatch — claims what there is room for and starts an attempt for each message

Owns: the loop claim → group by message and way → find a place → fetch bodies → attempt.
Guarantees: never more recipients claimed than `claim.inflight`. No recipient in flight is claimed again when its lease
    may have ended: its result comes first, after however long an outage. Waits for a notification, a due time or the
    poll interval, whichever is first. What cannot be started soon is parked, so that it takes nobody's room. Stopping
    claims nothing more, gives back what no attempt has begun, and waits for the rest.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from queued import commit_delay
from queued.attempts import Attempts
from queued.destinations.destinations import Destinations
from queued.destinations.unproven import Unproven
from queued.in_flight import InFlight
from queued.pacing.pace import Paces
from queued.signing.sign import Signer
from shared.config.queued.signing import Signing
from shared.failure_points import reach
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from queued.attempts import Admitted, Delivery
    from queued.claiming.bodies import Bodies
    from queued.claiming.claim import Claimer
    from queued.deliver import Transport
    from queued.reports.suppression_screen import Screen
    from queued.result import Recorder
    from queued.values import Claimed
    from shared.config.queued.settings import Claim as ClaimSettings

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
# Bodies are fetched this many messages at a time: enough to spare round trips, few enough to start soon.
_FETCH = 50
# Seconds for which, after a claim that was for destinations that move and have no room, no more is taken in flight than
# there was then: to look past such mail for others' must not cost what sends it. Longer where it is sent faster:
# then the others' turn comes soon anyway.
_CEILING, _HIGHEST = 0.5, 5.0
_A_SECOND: Final = 0.01  # of it, for each recipient that is sent in a second
_MOST: Final = 0.5  # of the claim was parked
_NEARLY_ALL: Final = 0.9  # of the claim was for such destinations


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
        paces: Paces | None = None,
        screen: Screen | None = None,
    ) -> None:
        """`transports` may change within while this is used."""
        self._pool = pool
        self._claimer = claimer
        self._bodies = bodies
        self._transports = transports
        self._recorder = recorder
        self._settings = settings
        self._paces = paces or Paces()
        self._in_flight = InFlight(pool, claimer, settings)
        self._in_flight.on_left = self._left
        #: What is known of destinations: rules lower their concurrency here.
        self.destinations = Destinations(transports, settings)
        self._attempts = Attempts(
            transports,
            self.destinations,
            self._in_flight,
            bodies,
            recorder,
            signer or Signer(Signing()),
            self._paces,
            settings.wait.total_seconds(),
            Unproven(settings.inflight),
            screen,
        )
        self._ceiling, self._ceiling_until = 0, 0.0
        self._passed_over = False  # the last claim left out what is in flight
        recorder.on_recorded = self._in_flight.recorded
        recorder.in_hand = self._in_flight.__len__
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self.due = asyncio.Event()

    @property
    def inflight(self) -> int:
        """Recipients in flight: claimed, and neither recorded, parked nor given back."""
        return len(self._in_flight)

    def stop(self) -> None:
        """Claim nothing more; what waits for its turn goes back."""
        self._stopping.set()
        self._in_flight.stopping = True
        self.destinations.close()
        self.due.set()
        self._room.set()

    def start_over(self) -> None:
        """Look at everything that is due, now: notifications may have gone unheard."""
        self._claimer.start_over()
        self.due.set()

    async def drained(self) -> None:
        """Return when claiming has ended, every attempt with it, and all that was to be parked is."""
        await self._idle.wait()
        await self._attempts.drained()
        await self._in_flight.parked()

    async def heartbeat(self) -> None:
        """Put the end of leases off while attempts go on, until cancelled."""
        await self._in_flight.heartbeat()

    async def run(self) -> None:
        """Claim and start attempts until stopped; then wait to be cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._in_flight.run())
            await self._claim_until_stopped()
            self._idle.set()
            await asyncio.Event().wait()

    async def _claim_until_stopped(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            self._room.clear()
            started = monotonic()
            below = started < self._ceiling_until
            ceiling = self._ceiling if below else self._settings.inflight
            free = min(self._settings.batch, ceiling - self.inflight)
            # A claim costs the same for one row as for many: wait until a good part of a batch fits.
            if free * 4 < min(self._settings.batch, self._settings.inflight):
                await _rest(self._room, self._ceiling_until - started if below else None)
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
                if wait := commit_delay.seconds(self.inflight):
                    await _rest(self._stopping, wait)
                await self._wait_for_mail()

    async def _claim(self, limit: int) -> list[Claimed]:
        async with self._pool.connection() as connection:
            # After an outage: PostgreSQL takes these for due, while we hold their results and only have to record them.
            late = self._in_flight.late(self._settings.lease.total_seconds() / 3)
            if late:
                self._recorder.hurry()
                self._passed_over = True
            claimed = await self._claimer.take(connection, limit, late)
        self._in_flight.take(claimed)
        if claimed:
            reach("claim.taken")
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
        """Start an attempt for each message there is a place for; the others are parked."""
        busy = self._attempts.busy
        self.destinations.full.clear()
        admitted = [place for delivery in self._grouped(claimed) if (place := self._attempts.admit(delivery))]
        parked = self._attempts.busy - busy
        if parked and (parked > _MOST * len(claimed) or parked + self._for_full(admitted) > _NEARLY_ALL * len(claimed)):
            self._ceiling = max(self.inflight - self._in_flight.leaving, self._settings.batch)
            rate = sum(1 / every for every in self.destinations.full.values() if every)
            self._ceiling_until = monotonic() + min(max(rate * _A_SECOND, _CEILING), _HIGHEST)
        await self._begin(admitted)

    def _for_full(self, admitted: Sequence[Admitted]) -> int:
        """Recipients that got the last places of destinations that have no more."""
        return sum(len(each.delivery) for each in admitted if each.place.destination in self.destinations.full)

    async def _begin(self, admitted: list[Admitted]) -> None:
        """Fetch bodies in portions and start each attempt; what is not begun when stopping goes back."""
        while admitted and not self._stopping.is_set():
            portion = admitted[:_FETCH]
            size = sum(each.delivery[0].size for each in portion)
            while len(portion) > 1 and size > self._settings.maxbytes // 4:
                size -= portion.pop().delivery[0].size
            await self._bodies.reserve(size)
            try:
                bodies = await self._bodies.fetch([each.delivery[0].message_id for each in portion])
            except (*database.OUTAGE, *database.REFUSAL) as error:
                self._bodies.let_go(size)
                events.emit("claim.failed", error=error, seconds=_FIRST_PAUSE)
                await _rest(self._stopping, _FIRST_PAUSE)  # no news of other mail brings these bodies
                continue
            del admitted[: len(portion)]
            for each in portion:
                self._attempts.begin(each, bodies.get(each.delivery[0].message_id))
        await self._attempts.dismiss(admitted)

    def _grouped(self, claimed: Iterable[Claimed]) -> list[Delivery]:
        """Recipients of one message who go the same way share an SMTP transaction, up to the transport's limit."""
        groups: dict[tuple[object, ...], list[Claimed]] = {}
        apart = self._paces.by_destination
        for c in claimed:
            transport = self._transports.get(c.transportid)
            way = transport.way(c.recipient.domain) if transport else ""
            domain = c.recipient.domain.lower() if apart else ""
            groups.setdefault((c.message_id, c.transportid, way, domain), []).append(c)
        deliveries = []
        for group in groups.values():
            transport = self._transports.get(group[0].transportid)
            limit = transport.settings.recipients if transport else len(group)
            deliveries += [tuple(group[i : i + limit]) for i in range(0, len(group), limit)]
        return deliveries

    def _left(self, claimed: Sequence[Claimed]) -> None:
        self._room.set()
        if self._passed_over:
            self._passed_over = False
            self.start_over()
        if self._claimer.done(claimed):
            self.due.set()


async def _rest(until: asyncio.Event, seconds: float | None) -> None:
    """Until the event or for so long, None for ever."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()
