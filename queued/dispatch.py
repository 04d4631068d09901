"""dispatch — claims what there is room for and starts an attempt for each message

Owns: the loop claim → group by message → fetch bodies → attempt, and the number of recipients in hand.
Called by: queued.daemon.
Guarantees: never more recipients claimed than `claim.inflight`. Waits for a notification, a due time or the poll
    interval, whichever is first. Stopping claims nothing more, gives back what no attempt has begun, and waits for the
    rest.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from queued.result import Recorder, Result
from shared import database, events
from shared.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from queued.bodies import Bodies
    from queued.claim import Claimed, Claimer
    from queued.deliver import Body, Transport
    from shared.queued_config import Claim as ClaimSettings

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
# Bodies are fetched this many messages at a time: enough to spare round trips, few enough to start soon.
_FETCH = 50

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
    ) -> None:
        self._pool = pool
        self._claimer = claimer
        self._bodies = bodies
        self._transports = transports
        self._recorder = recorder
        self._settings = settings
        self._attempts: set[asyncio.Task[None]] = set()
        self._inflight = 0
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self.due = asyncio.Event()

    @property
    def inflight(self) -> int:
        """Recipients claimed and not yet handed to the recorder."""
        return self._inflight

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopping.set()
        self.due.set()
        self._room.set()

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
            free = min(self._settings.batch, self._settings.inflight - self._inflight)
            # A claim costs the same for one row as for many: wait until a good part of a batch fits.
            if free * 4 < min(self._settings.batch, self._settings.inflight):
                await self._room.wait()
                continue
            try:
                self.due.clear()
                claimed = await self._claim(free)
                pause = _FIRST_PAUSE
            except (*database.OUTAGE, *database.REFUSAL) as error:
                events.emit("claim.failed", error=error, seconds=pause)
                await self._rest(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            await self._start(claimed)
            if len(claimed) < free:
                await self._wait_for_mail()
        self._idle.set()
        await asyncio.Event().wait()

    async def _claim(self, limit: int) -> list[Claimed]:
        async with self._pool.connection() as connection:
            claimed = await self._claimer.take(connection, limit)
        self._inflight += len(claimed)
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
        await self._rest(min(wait, self._settings.poll.total_seconds()))

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.due.wait()
        except TimeoutError:
            pass

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
                await self._rest(_FIRST_PAUSE)
                continue
            del deliveries[: len(portion)]
            for delivery in portion:
                attempt = asyncio.create_task(self._attempt(delivery, bodies.get(delivery[0].message_id)))
                self._attempts.add(attempt)
                attempt.add_done_callback(self._attempts.discard)
        await self._give_back([c for delivery in deliveries for c in delivery])

    def _grouped(self, claimed: Iterable[Claimed]) -> list[Delivery]:
        """Recipients of one message over one transport share an SMTP transaction, up to the transport's limit."""
        groups: dict[tuple[object, str], list[Claimed]] = {}
        for c in claimed:
            groups.setdefault((c.message_id, c.transportid), []).append(c)
        deliveries = []
        for (_, transportid), group in groups.items():
            transport = self._transports.get(transportid)
            limit = transport.settings.recipients if transport else len(group)
            deliveries += [tuple(group[i : i + limit]) for i in range(0, len(group), limit)]
        return deliveries

    async def _attempt(self, delivery: Delivery, body: Body | None) -> None:
        results: list[Result] | None
        try:
            transport = self._transports.get(delivery[0].transportid)
            if transport is None:
                results = _ours(delivery, f"no transport {delivery[0].transportid!r} in queued.yaml")
            elif body is None:
                for c in delivery:
                    events.emit("body.missing", id=c.message_id, recipient_id=c.id)
                results = _ours(delivery, "the message has no body")
            else:
                results = await transport.attempt(delivery, body)
        except Exception as error:  # noqa: BLE001 - our fault must neither stop the worker nor lose mail
            events.emit("daemon.failed", part="attempt", error=repr(error))
            results = _ours(delivery, "internal error")
        finally:
            self._bodies.let_go(delivery[0].size)
        if results is None:
            await self._give_back(list(delivery))
        else:
            self._recorder.add(results)
            self._left(len(delivery))

    async def _give_back(self, claimed: list[Claimed]) -> None:
        """As if they had not been claimed. If PostgreSQL is away, their lease gives them back."""
        try:
            async with self._pool.connection() as connection:
                await self._claimer.give_back(connection, claimed)
        except (*database.OUTAGE, *database.REFUSAL) as error:
            events.emit("claim.failed", error=error, seconds=0.0)
        self._left(len(claimed))

    def _left(self, count: int) -> None:
        self._inflight -= count
        self._room.set()


def _ours(delivery: Delivery, text: str) -> list[Result]:
    """A deferral that is our own fault: the operator has time to mend it, nothing is given up."""
    outcome = Outcome("deferred", "us", None, "4.3.5", text)
    return [Result.later(c, outcome, timedelta(minutes=5)) for c in delivery]
