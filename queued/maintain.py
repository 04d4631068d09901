"""maintain — keeps the tables small and the coming days ready

Owns: holding mail that kills its workers, finishing mail that operators deleted or bounced, collecting bodies without
    recipients, waking workers whose notification was lost, noting unserved mail, making and dropping days of history,
    putting back due times with the server's clock, vacuuming hot leaves.
Guarantees: of all workers the one that has the lease does it; one that died delays the others by the lease at most.
    Two at once, which a worker of the version before can cause, do no harm: each passes over locked rows.
    A round takes five seconds at most, whatever waits: each step has its share, works in batches that shrink where
    they are slow, and leaves the rest to the next round, which then follows at once. How long a commit takes does not
    count: smaller batches need more of them. Nothing therefore waits for the sweep to come to its end. A step that
    fails is logged, the round's other steps go on, and the next round tries it again; only the loss of the connection
    ends a round early.
See: sql/schema/15_maintenance.sql: the same functions pg_cron can call (sql/pg_cron.sql).
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from queued.claiming.floor import FullPass
from shared.failure_points import reach
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from shared.config.queued.settings import Maintenance

_ROUND: Final = 4.5  # seconds for a round; what the last call needs to commit, or to be cancelled, comes on top
_STEP: Final = (
    0.5  # seconds after which a step leaves the rest; a call may take as long again. The sweep has what is left
)
_FIRST: Final = 64  # of a batch, until it is known how long one takes
_BATCH: Final = 1000
_LAST: Final = "sweep"
#: What opens every leaf. For the first call of a connection PostgreSQL reads each from its catalog: with 1,000 leaves
#: that took 1.8 s, the next ones 0.6 s.
_WIDE: Final = frozenset({"maintain_hold_poison", "maintain_finish"})
#: Steps that are begun once an interval.
_ONCE: Final = frozenset({"renotify", "unserved", "drop_days"})
_DAYS: Final = 8  # made by one call, until it is known how long one takes
_QUICK, _SLOW = 0.05, 0.2  # seconds of work, below which the next batch is larger, above which it is smaller
_OVERDUE: Final = 100  # recipients of each leaf and class that are looked at for those to wake
_LEAVES: Final = 16  # that a look for what is overdue locks in one call, at most
_RECENT: Final = 10  # intervals for which a look that took too long is a smaller one
_UNSERVED: Final = 10  # recipients noted of each leaf and partition; the table of metrics tells it
#: How long a note about mail must stay before the mail counts as unserved: some beats of the slowest worker.
UNSERVED_GRACE: Final = "1 minute"
# Dead rows in a leaf at which waiting for autovacuum costs claims more than vacuuming costs the disk.
_DEAD = 10_000
# Taken again before each step, so it is for one step, with as much again to spare. A worker that dies delays
# maintenance by as much: mail that kills each worker at its start is held by the first one that starts after that.
_LEASE = timedelta(seconds=10)


async def run(pool: database.Pool, worker: str, settings: Maintenance) -> None:
    """A round now and one every interval, and at once again where one left something, until cancelled."""
    maintainer = Maintainer(worker, settings)
    every = settings.interval.total_seconds()
    whole = -math.inf
    while True:
        began = monotonic()
        due = began - whole >= every
        try:
            async with pool.connection() as connection:
                if await maintainer.round_if_elected(connection, whole=due) and due:
                    whole = began
        except (*database.OUTAGE, *database.REFUSAL) as error:
            maintainer.more = False
            events.emit("maintain.failed", error=error, away=database.is_away(error))
        if not maintainer.more:
            await asyncio.sleep(every)


async def run_vacuum(pool: database.Pool, settings: Maintenance) -> None:
    """Vacuum what needs it, every interval, until cancelled. Apart from the rounds, since a large leaf takes long."""
    while True:
        try:
            async with pool.connection() as connection:
                await vacuum(connection)
        except (*database.OUTAGE, *database.REFUSAL) as error:
            events.emit("maintain.failed", step="vacuum", error=database.reason(error), away=database.is_away(error))
        await asyncio.sleep(settings.interval.total_seconds())


async def vacuum(connection: database.Connection) -> None:
    """Leaves in which dead rows have piled up; what this role may not vacuum is left to autovacuum without a try.

    PostgreSQL refuses with no more than a warning, so that the try itself would tell nothing. A leaf that another
    worker vacuums is passed over.
    """
    try:
        for row in await database.fetch(connection, "maintain_vacuum_wanted", dead=_DEAD):
            if row.allowed:
                started = monotonic()
                await database.run_on(connection, "maintain_vacuum", row.leaf)
                events.emit("maintain.vacuumed", leaf=row.leaf, seconds=monotonic() - started)
    except (*database.OUTAGE, *database.REFUSAL) as error:
        events.emit("maintain.failed", step="vacuum", error=database.reason(error), away=database.is_away(error))


class Maintainer:
    """One worker's rounds, and what it keeps from one to the next: how large its batches are, how far it has swept."""

    def __init__(self, worker: str, settings: Maintenance) -> None:
        self._worker = worker
        self._settings = settings
        self._batches: dict[str, int] = {"history_create": _DAYS}
        self._made_to = 0  # days ahead that there are
        self._recent: dict[str, float] = {}  # until when a step looks at what is recent only
        self._looked_to: dict[str, str] = {}  # the last leaf that a step has looked at, while others are left
        self._full = FullPass(settings.interval.total_seconds())
        self._swept_to: datetime | None = None
        self._deadline = self._limit = math.inf
        self._worked = 0.0  # seconds that the last call took, without its commit
        self._read: set[tuple[int, str]] = (
            set()
        )  # by which backends, for which calls, every leaf is read from the catalog
        #: The last round left something to the next.
        self.more = False

    async def round_if_elected(self, connection: database.Connection, *, whole: bool = True) -> bool:
        """One round, unless another worker is at it; false when it was. Without `whole` only what can leave a rest."""
        self.more = False
        if not await self._elected(connection):
            return False
        try:
            await self._round(connection, whole=whole)
        finally:
            await database.fetch(connection, "maintain_resign", worker=self._worker)
        return True

    async def _elected(self, connection: database.Connection) -> bool:
        [row] = await database.fetch(connection, "maintain_elect", worker=self._worker, lease=_LEASE)
        return bool(row[0])

    async def _round(self, connection: database.Connection, *, whole: bool) -> None:
        """Every step, also after failed ones, as long as another worker has not been elected."""
        self._deadline = monotonic() + _ROUND
        for name, step in self._steps(whole=whole).items():
            started = monotonic()
            if started >= self._deadline:
                self.more = True
                return
            self._limit = self._deadline if name == _LAST else min(started + _STEP, self._deadline)
            try:
                if not await self._elected(connection):
                    return
                await step(connection)
            except (*database.OUTAGE, *database.REFUSAL) as error:
                if connection.closed:
                    raise
                events.emit("maintain.failed", step=name, error=database.reason(error), away=database.is_away(error))

    def _steps(self, *, whole: bool) -> dict[str, Callable[[database.Connection], Awaitable[None]]]:
        """In this order: what would kill its worker is held before the next claim takes it, and the sweep comes last,
        because it may take all the time left.
        """
        steps = {
            "hold_poison": self._hold_poison,
            "make_days": self._make_days,
            "finish": self._finish,
            "clock": self._clock,
            "renotify": self._renotify,
            "unserved": self._unserved,
            "forget_keys": self._forget_keys,
            "forget_notices": self._forget_notices,
            "drop_days": self._drop_days,
            _LAST: self._sweep,
        }
        return {
            name: step
            for name, step in steps.items()
            if whole or name not in _ONCE or f"maintain_{name}" in self._looked_to
        }

    async def _make_days(self, connection: database.Connection) -> None:
        """A few days by each call: one that is ended leaves none, and a year takes longer than a step may."""
        ahead, made = self._settings.ahead, 0
        self._made_to = max(min(self._made_to, ahead) - 1, 0)  # midnight may have come since

        async def some(batch: int) -> bool:
            nonlocal made
            to = min(self._made_to + batch, ahead)
            made += await self._count(connection, "history_create", ahead=to)
            self._made_to = to
            return to < ahead

        try:
            await self._batch_by_batch("history_create", some)
        finally:
            if made:
                events.emit("maintain.days", partitions=made)

    async def _hold_poison(self, connection: database.Connection) -> None:
        if held := await self._all(connection, "maintain_hold_poison", poison=self._settings.poison):
            events.emit("maintain.poison", recipients=held)

    async def _finish(self, connection: database.Connection) -> None:
        finished: Counter[str] = Counter()

        async def some(batch: int) -> bool:
            rows = await self._call(connection, "maintain_finish", worker=self._worker, batch=batch)
            finished.update({row.result: row.recipients for row in rows})
            return bool(rows)

        try:
            await self._batch_by_batch("maintain_finish", some)
        finally:
            if finished:
                events.emit("maintain.finished", **finished)

    async def _clock(self, connection: database.Connection) -> None:
        moved, back = 0, timedelta()

        async def some(batch: int) -> bool:
            nonlocal moved, back
            [row] = await self._call(connection, "maintain_clock", batch=batch)
            moved += row.moved
            back = row.back or back
            return bool(row.more)

        try:
            await self._batch_by_batch("maintain_clock", some)
        finally:
            if back:
                events.emit("maintain.clock", recipients=moved, seconds=back.total_seconds())

    async def _renotify(self, connection: database.Connection) -> None:
        woken: list[int] = []
        try:
            await self._look(connection, "maintain_renotify", woken, batch=_OVERDUE)
        finally:
            if any(woken):
                events.emit("maintain.renotified", partitions=sum(woken))

    async def _unserved(self, connection: database.Connection) -> None:
        await self._look(connection, "maintain_unserved", [], most=_UNSERVED)
        if "maintain_unserved" in self._looked_to:
            return  # the round that comes to the last leaf says it
        rows = await database.fetch(connection, "metrics_unserved", grace=UNSERVED_GRACE, series=_BATCH)
        if rows:
            events.emit(
                "maintain.unserved",
                partitions=", ".join(sorted({row.partid for row in rows})[:20]),
                recipients=sum(row.recipients for row in rows),
                seconds=float(max(row.overdue for row in rows)),
            )

    async def _look(self, connection: database.Connection, name: str, found: list[int], **values: Any) -> None:
        """For what is overdue, a few leaves by each call, from where the last round stopped.

        All of it, or, for a while after a call that took too long, what has been overdue for five minutes at most. A
        call does where an old snapshot keeps the indexes full of removed rows. A leaf that takes too long even so is
        passed over, because it would keep all others from their turn.
        """

        async def some(batch: int) -> bool:
            after = self._looked_to.get(name, "")
            recent = monotonic() < self._recent.get(name, -math.inf)
            about = {"overdue": self._settings.overdue, "recent": recent, "after": after, "leaves": batch}
            try:
                [row] = await self._call(connection, name, **about, **values)
            except database.CANCELLED:
                self._recent[name] = monotonic() + _RECENT * self._settings.interval.total_seconds()
                if recent and batch == 1:
                    [next_one] = await database.fetch(connection, "maintain_leaf_after", after=after)
                    self._stopped_at(name, next_one.leaf)
                raise
            found.append(row.found)
            self._stopped_at(name, row.reached)
            return row.reached is not None

        await self._batch_by_batch(name, some, most=_LEAVES)

    def _stopped_at(self, name: str, leaf: str | None) -> None:
        if leaf is None:
            self._looked_to.pop(name, None)
        else:
            self._looked_to[name] = leaf

    async def _forget_keys(self, connection: database.Connection) -> None:
        await self._all(connection, "maintain_forget_keys", keep=self._settings.keep.idempotency)

    async def _forget_notices(self, connection: database.Connection) -> None:
        await self._all(connection, "maintain_forget_notices", keep=self._settings.keep.history)

    async def _drop_days(self, connection: database.Connection) -> None:
        keep = self._settings.keep
        if dropped := await self._count(connection, "maintain_history_drop", keep=keep.history, find=keep.find):
            events.emit("maintain.dropped", partitions=dropped)

    async def _sweep(self, connection: database.Connection) -> None:
        """From where the last one came to, and now and then from the oldest note on, for what it had to pass over.

        A pass from the oldest on that does not come to an end, because somebody's old snapshot keeps the index full of
        what is gone, leaves what is older than an hour to the next.
        """
        reach("maintain.sweep")
        swept = 0
        full = self._full.due()
        since = None if full else self._swept_to
        settings = self._settings

        async def some(batch: int) -> bool:
            nonlocal swept, full, since
            started = monotonic()
            try:
                [row] = await self._call(
                    connection,
                    "maintain_sweep",
                    grace=settings.grace,
                    keep=settings.keep.deadletters,
                    batch=batch,
                    since=since,
                    full=full,
                )
            except database.CANCELLED:
                self._swept_to = since
                raise
            finally:
                if full:
                    self._full.done(started)
                    full = False
            swept += row.swept
            came_on = bool(row.looked > 0 and (row.swept > 0 or row.reached != since))
            self._swept_to = since = row.reached
            return came_on

        try:
            await self._batch_by_batch("maintain_sweep", some)
        finally:
            if swept:
                events.emit("maintain.swept", messages=swept)

    async def _call(self, connection: database.Connection, name: str, **values: Any) -> list[database.Row]:
        """One call of a maintenance function, ended by PostgreSQL when it takes what others of the round need.

        The first that reads every leaf from the catalog may take half of what is left of the round.
        """
        now, until = monotonic(), min(self._limit + _STEP, self._deadline)
        first = (connection.info.backend_pid, name)
        if name in _WIDE and first not in self._read:
            until = max(until, now + (self._deadline - now) / 2)
        try:
            async with connection.transaction():
                await database.fetch(connection, "maintain_patience", milliseconds=max(int((until - now) * 1000), 1))
                began = monotonic()
                rows = await database.fetch(connection, name, **values)
                self._worked = monotonic() - began
        except database.CANCELLED:
            await connection.rollback()  # a COMMIT cancelled before it began has left the transaction open and failed
            raise
        if name in _WIDE:
            self._read = {each for each in self._read if each[1] != name} | {first}
        return rows

    async def _count(self, connection: database.Connection, name: str, **values: Any) -> int:
        """The work of one call."""
        [row] = await self._call(connection, name, **values)
        return int(row[0])

    async def _all(self, connection: database.Connection, name: str, **values: Any) -> int:
        """Batch after batch until there is no more to do, or no time."""
        total = 0

        async def some(batch: int) -> bool:
            nonlocal total
            done = await self._count(connection, name, batch=batch, **values)
            total += done
            return done > 0

        await self._batch_by_batch(name, some)
        return total

    async def _batch_by_batch(self, name: str, some: Callable[[int], Awaitable[bool]], most: int | None = None) -> None:
        """Call until one did nothing, or the step's time is over; batches are as large as their work is quick."""
        most = _BATCH if most is None else most
        batch = self._batches.get(name, min(_FIRST, most))
        until = min(self._limit + _STEP, self._deadline)
        going = True
        while going:
            started = monotonic()
            try:
                going = await some(batch)
            except database.CANCELLED:
                self.more = self.more or batch > 1
                self._batches[name] = max(batch // 4, 1)
                raise
            ended = monotonic()
            if self._worked < _QUICK:
                batch = min(2 * batch, most)
            elif self._worked > _SLOW:
                batch = max(batch // 2, 1)
            self._batches[name] = batch
            if going and (ended >= self._limit or ended + 2 * (ended - started) > until):
                self.more = True
                return
