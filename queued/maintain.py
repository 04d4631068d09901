"""maintain — what keeps the tables small and the coming days ready

Owns: holding what kills its workers, finishing what operators deleted or bounced, collecting bodies without recipients,
    waking workers whose notification was lost, making and dropping days of history, vacuuming hot leaves.
Called by: queued.daemon runs it in every worker; an advisory lock lets one of them work at a time.
Guarantees: bounded batches, so that no transaction is long; a round that fails is logged and the next one tries again.
See: sql/migrations, maintain: the same functions pg_cron can call (sql/pg_cron.sql).
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from shared import database, events

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
    if made := await _count(connection, "history_create", ahead=settings.ahead):
        events.emit("maintain.days", partitions=made)
    if held := await _all(connection, "maintain_hold_poison", poison=settings.poison):
        events.emit("maintain.poison", recipients=held)
    while rows := await database.fetch(connection, "maintain_finish", now=None, worker=worker, batch=_BATCH):
        events.emit("maintain.finished", **{row.result: row.recipients for row in rows})
    if swept := await _all(connection, "maintain_sweep", grace=settings.grace, keep=settings.keep.deadletters):
        events.emit("maintain.swept", messages=swept)
    if woken := await _count(connection, "maintain_renotify", overdue=settings.overdue, batch=_BATCH):
        events.emit("maintain.renotified", partitions=woken)
    await _all(connection, "maintain_forget_keys", keep=settings.keep.idempotency)
    await _vacuum(connection)
    # Last, because a reader of history makes it give up.
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


async def _vacuum(connection: database.Connection) -> None:
    """Leaves in which dead rows have piled up; a role that may not vacuum leaves it to autovacuum."""
    for row in await database.fetch(connection, "maintain_vacuum_wanted", dead=_DEAD):
        started = monotonic()
        await database.run_on(connection, "maintain_vacuum", row.leaf)
        events.emit("maintain.vacuumed", leaf=row.leaf, seconds=monotonic() - started)
