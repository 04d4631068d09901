"""dispatch — claims what there is room for and starts an attempt for each message

Owns: the loop claim → group into deliveries → find a place → fetch bodies → attempt.
Guarantees: never more recipients claimed than `claim.inflight`, and at most a quarter more, for those set aside
    (queued/in_flight.py). No recipient in flight is claimed again when its lease may have ended: its result comes
    first, after however long an outage. Waits for a notification, a due time or the poll interval, whichever is first.
    What cannot be started soon is parked and leaves its room to other mail. Stopping claims nothing more, gives back
    what no attempt has begun, and waits for the rest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final

from queued import commit_delay
from queued.admission.gates import Admitted
from shared.failure_points import reach
from shared.observe import events
from shared.postgres import database
from shared.timed_wait import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queued.admission.gates import Delivery
    from queued.attempts import Attempts
    from queued.claiming.bodies import Bodies
    from queued.claiming.claim import Claimer
    from queued.in_flight import InFlight
    from queued.result import Recorder
    from queued.values import Claimed
    from shared.config.queued.settings import Claim as ClaimSettings

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
# Bodies are fetched this many messages at a time: enough to spare round trips, few enough to start soon.
_FETCH = 50
# Attempts at destinations that have not been reached of late that begin before mail is claimed again.
_PORTION: Final = 20
_FEWER: Final = 4  # times fewer are claimed after a claim that was mostly for them
# Seconds for which, after a claim that was for destinations that move and have no room, no more is taken in flight than
# there was then: to look past such mail for others' must not cost what sends it. Longer where it is sent faster:
# then the others' turn comes soon anyway.
_CEILING, _HIGHEST = 0.5, 5.0
_A_SECOND: Final = 0.01  # of it, for each recipient that is sent in a second
_MOST: Final = 0.5  # of the claim was parked
_NEARLY_ALL: Final = 0.9  # of the claim was for such destinations
# Seconds until a worker without mail asks when the next is due: where mail flows, more has come by then.
_SOON: Final = 0.05
# Without room to claim, or for bodies, for so many seconds, the worker ends stalled attempts.
_STARVED: Final = 5.0


class Dispatcher:
    """The heart of a worker."""

    def __init__(
        self,
        pool: database.Pool,
        claimer: Claimer,
        in_flight: InFlight,
        bodies: Bodies,
        recorder: Recorder,
        attempts: Attempts,
        settings: ClaimSettings,
    ) -> None:
        self._pool = pool
        self._claimer = claimer
        self._in_flight = in_flight
        self._bodies = bodies
        self._recorder = recorder
        self._attempts = attempts
        self._settings = settings
        self._ceiling, self._ceiling_until = 0, 0.0
        self._batch = settings.batch  # recipients to be claimed next
        self._later = deque[Admitted]()  # those for destinations that have not been reached of late
        self._claimed_at = monotonic()
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        #: Set when there may be mail to claim.
        self.due = in_flight.due

    @property
    def inflight(self) -> int:
        """Recipients in flight: claimed, and not yet recorded, parked or released."""
        return len(self._in_flight)

    def stop(self) -> None:
        """Claim nothing more; what waits for its turn goes back."""
        self._stopping.set()
        self._in_flight.stopping = True
        self._attempts.admission.destinations.close()
        self.due.set()
        self._in_flight.room.set()

    def start_over(self) -> None:
        """Look at everything that is due, now: notifications may have gone unheard."""
        self._in_flight.start_over()

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
            self._in_flight.room.clear()
            free = await self._free()
            if not free:
                continue
            try:
                self.due.clear()
                claimed = await self._claim(free)
                pause = _FIRST_PAUSE
            except database.CONFLICT:
                continue  # somebody held or released one of the rows at that moment
            except (*database.OUTAGE, *database.REFUSAL) as error:
                events.emit("claim.failed", error=error, seconds=pause, away=database.is_away(error))
                await wait_for_event(self.due, pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            await self._start(claimed)
            if len(claimed) < free:
                while self._later and not self._stopping.is_set() and not self.due.is_set():
                    await self._begin(self._some())
                if wait := commit_delay.before_claim(self._in_flight.moving):
                    await wait_for_event(self._stopping, wait)
                await self._wait_for_mail()
        await self._attempts.dismiss(self._later)

    async def _free(self) -> int:
        """How many recipients to claim now; 0 after a wait for room, or if something else is to begin first."""
        now = monotonic()
        below = now < self._ceiling_until
        ceiling = self._ceiling if below else self._settings.inflight
        free = min(self._batch, ceiling - self._in_flight.counted)
        # A claim costs the same for one row as for many: wait until a good part of a batch fits.
        if free * 4 >= min(self._batch, self._settings.inflight):
            self._claimed_at = now
            return free
        if self._later:
            await self._begin(self._some())
            return 0
        if not below and now - self._claimed_at > _STARVED:
            self._attempts.relieve()
            # More may not fit for as long as the others are waited for.
            free = min(self._batch, ceiling - self._in_flight.counted)
            if free > 0:
                return free
        await wait_for_event(self._in_flight.room, self._ceiling_until - now if below else _STARVED)
        return 0

    async def _claim(self, limit: int) -> list[Claimed]:
        async with self._pool.connection() as connection:
            # After an outage: PostgreSQL takes these for due, while we hold their results and only have to record them.
            late = self._in_flight.late(self._settings.lease.total_seconds() / 3)
            if late:
                self._recorder.hurry()
            claimed = await self._claimer.take(connection, limit, late)
        self._in_flight.take(claimed)
        if claimed:
            reach("claim.taken")
        return claimed

    async def _wait_for_mail(self) -> None:
        """Until a wake-up, the next due time or the poll interval."""
        await wait_for_event(self.due, _SOON)
        if self.due.is_set():
            return
        try:
            async with self._pool.connection() as connection:
                wait = await self._claimer.until_due(connection)
        except (*database.OUTAGE, *database.REFUSAL):
            wait = _LONGEST_PAUSE
        await wait_for_event(self.due, min(wait, self._settings.poll.total_seconds()))

    async def _start(self, claimed: list[Claimed]) -> None:
        """Start an attempt for each message there is a place for; the others are parked."""
        busy, full = self._attempts.admission.busy, self._attempts.admission.destinations.full
        full.clear()
        deliveries = self._attempts.admission.deliveries(claimed)
        admitted = [
            place for delivery in deliveries if (place := self._attempts.admit(delivery, self._follow(delivery)))
        ]
        parked = self._attempts.admission.busy - busy
        if parked and (parked > _MOST * len(claimed) or parked + self._for_full(admitted) > _NEARLY_ALL * len(claimed)):
            self._ceiling = max(self._in_flight.counted - self._in_flight.leaving, self._settings.batch)
            rate = sum(1 / every for every in full.values() if every)
            self._ceiling_until = monotonic() + min(max(rate * _A_SECOND, _CEILING), _HIGHEST)
        strange = [each for each in admitted if each.unproven is not None]
        known = [each for each in admitted if each.unproven is None]
        # Where most are not for destinations that answer, the next claim comes soon: it brings those that are.
        few = sum(len(each.delivery) for each in known) < len(claimed) // 2
        self._batch = max(self._settings.batch // _FEWER, 1) if few else self._settings.batch
        self._later.extend(strange)
        # Together: to fetch their bodies apart would be one round trip more before the next claim.
        await self._begin(known + self._some())

    def _follow(self, delivery: Delivery) -> int:
        """How many recipients that are newer may be due."""
        return max(0, self._claimer.newest - max(c.id for c in delivery))

    def _for_full(self, admitted: Sequence[Admitted]) -> int:
        """Recipients that got the last places of destinations that have no more."""
        return sum(
            len(each.delivery)
            for each in admitted
            if each.place.destination in self._attempts.admission.destinations.full
        )

    def _some(self) -> list[Admitted]:
        """A few at destinations that have not been reached of late: half the newest, half the oldest."""
        some = [self._later.popleft() for _ in range(min(_PORTION // 2, len(self._later)))]
        some += [self._later.pop() for _ in range(min(_PORTION // 2, len(self._later)))]
        return [each for each in some if self._attempts.may_begin(each)]

    async def _begin(self, admitted: list[Admitted]) -> None:
        """Fetch bodies in portions and start each attempt; the rest goes back when the worker stops."""
        while admitted and not self._stopping.is_set():
            portion = admitted[:_FETCH]
            size = sum(each.delivery[0].size for each in portion)
            while len(portion) > 1 and size > self._settings.maxbytes // 4:
                size -= portion.pop().delivery[0].size
            if not await self._bodies.reserve(size, _STARVED):
                self._attempts.relieve()
                continue
            try:
                bodies = await self._bodies.fetch([each.delivery[0].message_id for each in portion])
            except (*database.OUTAGE, *database.REFUSAL) as error:
                self._bodies.let_go(size)
                events.emit("claim.failed", error=error, seconds=_FIRST_PAUSE, away=database.is_away(error))
                await wait_for_event(self._stopping, _FIRST_PAUSE)  # no news of other mail brings these bodies
                continue
            del admitted[: len(portion)]
            for each in portion:
                self._attempts.begin(each, bodies.get(each.delivery[0].message_id))
        await self._attempts.dismiss(admitted)
