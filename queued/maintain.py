"""maintain — what keeps the tables small and the coming days ready

Owns: holding what kills its workers, finishing what operators deleted or bounced, collecting bodies without recipients,
    waking workers whose notification was lost, making and dropping days of history, vacuuming hot leaves.
Called by: queued.daemon runs it in every worker; an advisory lock lets one of them work at a time.
Guarantees: bounded batches, so that no transaction is long. A step that fails is logged, the round's other steps go on,
    and the next round tries it again; only the loss of the connection ends a round early.
See: sql/migrations, maintain: the same functions pg_cron can call (sql/pg_cron.sql).
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from shared import database, events
from shared.failure_points import reach

if TYPE_CHECKING:
    from shared.queued_config import Maintenance

_BATCH = 1000
# Dead rows in a leaf at which waiting for autovacuum costs claims more than vacuuming costs the disk.
_DEAD = 10_000


async def run(pool: database.Pool, worker: str, settings: Maintenance) -> None:
    """A round now and one every interval, until cancelled."""
    while True:
        try:
            async with pool.connection() as connection:
                await round_if_elected(connection, worker, settings)
        except (*database.OUTAGE, *database.REFUSAL) as error:
            events.emit("maintain.failed", error=error)
        await asyncio.sleep(settings.interval.total_seconds())


async def round_if_elected(connection: database.Connection, worker: str, settings: Maintenance) -> bool:
    """One round, unless another worker is at it; false when it was."""
    if database.is_pooled(connection):
        # A pooler could give the lock to one session and its release to another. Every step passes over what somebody
        # else is at, so nobody needs to be turned away.
        await _round(connection, worker, settings)
        return True
    [elected] = await database.fetch(connection, "maintain_elect")
    if not elected[0]:
        return False
    try:
        await _round(connection, worker, settings)
    finally:
        await database.fetch(connection, "maintain_resign")
    return True


async def _round(connection: database.Connection, worker: str, settings: Maintenance) -> None:
    """Every step, whatever becomes of those before it."""
    for name, step in _STEPS.items():
        try:
            await step(connection, worker, settings)
        except (*database.OUTAGE, *database.REFUSAL) as error:
            if connection.closed:
                raise
            events.emit("maintain.failed", step=name, error=database.reason(error))


async def _make_days(connection: database.Connection, _: str, settings: Maintenance) -> None:
    if made := await _count(connection, "history_create", ahead=settings.ahead):
        events.emit("maintain.days", partitions=made)


async def _hold_poison(connection: database.Connection, _: str, settings: Maintenance) -> None:
    if held := await _all(connection, "maintain_hold_poison", poison=settings.poison):
        events.emit("maintain.poison", recipients=held)


async def _finish(connection: database.Connection, worker: str, _: Maintenance) -> None:
    while rows := await database.fetch(connection, "maintain_finish", now=None, worker=worker, batch=_BATCH):
        events.emit("maintain.finished", **{row.result: row.recipients for row in rows})


async def _sweep(connection: database.Connection, _: str, settings: Maintenance) -> None:
    reach("maintain.sweep")
    if swept := await _all(connection, "maintain_sweep", grace=settings.grace, keep=settings.keep.deadletters):
        events.emit("maintain.swept", messages=swept)


async def _renotify(connection: database.Connection, _: str, settings: Maintenance) -> None:
    if woken := await _count(connection, "maintain_renotify", overdue=settings.overdue, batch=_BATCH):
        events.emit("maintain.renotified", partitions=woken)


async def _forget_keys(connection: database.Connection, _: str, settings: Maintenance) -> None:
    await _all(connection, "maintain_forget_keys", keep=settings.keep.idempotency)


async def _forget_notices(connection: database.Connection, _: str, settings: Maintenance) -> None:
    await _all(connection, "maintain_forget_notices", keep=settings.keep.history)


async def _drop_days(connection: database.Connection, _: str, settings: Maintenance) -> None:
    if dropped := await _count(connection, "maintain_history_drop", keep=settings.keep.history):
        events.emit("maintain.dropped", partitions=dropped)


async def _count(connection: database.Connection, name: str, **values: Any) -> int:
    """What one call of a maintenance function did."""
    [row] = await database.fetch(connection, name, now=None, **values)
    return int(row[0])


async def _all(connection: database.Connection, name: str, **values: Any) -> int:
    """Batch after batch until there is no more to do."""
    total = 0
    while done := await _count(connection, name, batch=_BATCH, **values):
        total += done
    return total


async def _vacuum(connection: database.Connection, _: str, __: Maintenance) -> None:
    """Leaves in which dead rows have piled up; what this role may not vacuum is left to autovacuum without a try.

    PostgreSQL refuses with no more than a warning, so that the try itself would tell nothing.
    """
    for row in await database.fetch(connection, "maintain_vacuum_wanted", dead=_DEAD):
        if row.allowed:
            started = monotonic()
            await database.run_on(connection, "maintain_vacuum", row.leaf)
            events.emit("maintain.vacuumed", leaf=row.leaf, seconds=monotonic() - started)


# In this order. Dropping days comes last, because a reader of history makes it give up.
_STEPS: Final = {
    "make_days": _make_days,
    "hold_poison": _hold_poison,
    "finish": _finish,
    "sweep": _sweep,
    "renotify": _renotify,
    "forget_keys": _forget_keys,
    "forget_notices": _forget_notices,
    "vacuum": _vacuum,
    "drop_days": _drop_days,
}
