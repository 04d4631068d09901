"""schedule — queues recurring mail when it is due

Owns: finding due schedules, computing the next occurrence of each, and disabling those that cannot be sent.
Guarantees: each occurrence is queued once, in one transaction with the advance of next_at, under the idempotency key
    schedule:ID:OCCURRENCE. Occurrences missed while no worker ran are replaced by one message, not by a flood. A
    schedule that PostgreSQL or cron refuses is disabled with the reason and stops no other.
See: sql/schema/16_schedule.sql; shared/cron.py; docs/how-to/send/schedule-mail.md.
Bugs: a schedule made less than five seconds before its first occurrence may be that late once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shared import cron
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from datetime import datetime

_BATCH = 100
# How long a schedule made meanwhile may stay unnoticed; looking costs one glance at the end of a small index.
_GLANCE = 5.0


async def run(pool: database.Pool) -> None:
    """Queue what is due and sleep until the next is, until cancelled."""
    while True:
        wait = _GLANCE
        try:
            async with pool.connection() as connection:
                await send_due(connection)
                wait = await until_next(connection)
        except (*database.OUTAGE, *database.REFUSAL) as error:
            events.emit("schedule.failed", error=error, away=database.is_away(error))
        await asyncio.sleep(wait)


async def send_due(connection: database.Connection) -> int:
    """Queue every schedule that is due and in no other worker's hands; how many were queued."""
    sent, after = 0, ""
    while due := await database.fetch(connection, "schedule_due", now=None, after=after, batch=_BATCH):
        for row in due:
            sent += await _send(connection, row)
        after = due[-1].id
    return sent


async def until_next(connection: database.Connection) -> float:
    """Seconds to sleep: until the earliest occurrence to come, at most until the next glance."""
    [row] = await database.fetch(connection, "schedule_next", now=None)
    return _GLANCE if row.seconds is None else min(max(float(row.seconds), 0.0), _GLANCE)


async def _send(connection: database.Connection, due: database.Row) -> bool:
    """One transaction for one schedule; false when another worker has it, or it cannot be sent."""
    try:
        following = cron.following(due.cron, due.timezone, due.now)
        # No message where `following` is past by now; the next look computes it again.
        [row] = await database.fetch(
            connection, "schedule_send", schedule=due.id, occurrence=due.next_at, following=following
        )
    except (cron.CronRefused, *database.REFUSAL) as error:
        if isinstance(error, cron.CronRefused) or database.refuses_value(error):
            await _disable(connection, due.id, due.next_at, database.reason(error))
            return False
        if isinstance(error, database.OUTAGE):
            raise
        # A missing right, say: not the schedule's fault, and the others may fare better.
        events.emit("schedule.failed", schedule=due.id, error=database.reason(error))
        return False
    if row.message is None:
        return False
    events.emit(
        "schedule.sent",
        schedule=due.id,
        id=row.message,
        occurrence=due.next_at.isoformat(timespec="seconds"),
        seconds=(due.now - due.next_at).total_seconds(),
        next=following.isoformat(timespec="seconds"),
    )
    return True


async def _disable(connection: database.Connection, schedule: str, occurrence: datetime, reason: str) -> None:
    [row] = await database.fetch(
        connection, "schedule_disable", schedule=schedule, occurrence=occurrence, reason=reason
    )
    if row.disabled:
        events.emit("schedule.disabled", schedule=schedule, error=reason)
