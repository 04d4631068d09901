"""maintain — what keeps the tables small and the coming days ready

Owns: finishing what operators deleted or bounced, collecting bodies without recipients, making the coming days of
    history.
Called by: queued.daemon runs it in every worker; an advisory lock lets one of them work at a time.
Guarantees: bounded batches, so that no transaction is long; a round that fails is logged and the next one tries again.
See: sql/queries/messages_sweep.sql, finish_asked_for.sql, history_create.sql.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shared import database, events

if TYPE_CHECKING:
    from shared.queued_config import Maintenance

_BATCH = 1000


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
    [elected] = await database.fetch(connection, "maintain_elect")
    if not elected[0]:
        return False
    try:
        [made] = await database.fetch(connection, "history_create", now=None, ahead=settings.ahead)
        if made[0]:
            events.emit("maintain.days", partitions=made[0])
        await _finish_asked_for(connection, worker)
        await _sweep(connection, settings)
    finally:
        await database.fetch(connection, "maintain_resign")
    return True


async def _finish_asked_for(connection: database.Connection, worker: str) -> None:
    while True:
        rows = await database.fetch(connection, "finish_asked_for", now=None, worker=worker, batch=_BATCH)
        counted = {row.result: row.count for row in rows}
        if not counted:
            return
        events.emit("maintain.finished", deleted=counted.get("deleted", 0), bounced=counted.get("bounced", 0))


async def _sweep(connection: database.Connection, settings: Maintenance) -> None:
    while True:
        [swept] = await database.fetch(connection, "messages_sweep", now=None, grace=settings.grace, batch=_BATCH)
        if not swept[0]:
            return
        events.emit("maintain.swept", messages=swept[0])
