"""begin — holds a queue that was restored from a backup, before any of it is sent again

Owns: the first step of a recovery.
Guarantees: recipients are held in batches with their audit, as by any verb: killed at any instant, the same command
    does the rest. Schedules go on with their next occurrence, notifications to senders wait until the recovery is
    released. It works while the server's default is to refuse writes, which keeps daemons off until it is done.
Raises: Refused and its kinds.
See: sql/README.md, "A restored queue".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from operate.queue import act
from operate.queue.act import Change
from shared import cron
from shared.postgres import database, timeline

if TYPE_CHECKING:
    from operate.queue.act import By, Done, Plan, Watch

#: Held mail is grouped under this until it is compared.
QUARANTINE: Final = "recovery"
_EVERY_SCHEDULE: Final = 1000


@dataclass(frozen=True, slots=True)
class Beginning:
    """What `begin` would do, or has done. ended: bounced or deleted before the backup, and finished now."""

    plan: Plan
    schedules: int
    notices: int
    ended: int = 0
    done: Done | None = None


def hold(now: str | None) -> Change:
    """Put everything on hold, on this timeline of the server, by which doctor knows that it was done."""
    argument = {"timeline": now}
    return Change("recover", "recovery_hold", ("DELIVER",), "put on hold", sending=True, argument=argument)


def writable(conninfo: str) -> str:
    """The same connection, which may write although the server's default is that none may."""
    return database.with_default(conninfo, "default_transaction_read_only", "off")


async def plan(connection: database.Connection) -> Beginning:
    """What would be held."""
    change = hold(await timeline.current(connection))
    planned = await act.plan(connection, change, [], everything=True)
    [waiting] = await database.fetch(connection, "recovery_notices")
    return Beginning(planned, len(await _missed(connection)), waiting.notices - waiting.held)


async def begin(connection: database.Connection, by: By, planned: Beginning, watch: Watch = act.unwatched) -> Beginning:
    """Hold everything that was planned."""
    missed = await _missed(connection)
    for row in missed:
        await database.fetch(
            connection, "schedule_enable", id=row.id, next_at=cron.following(row.cron, row.timezone, row.now)
        )
    ended = 0
    while rows := await database.fetch(connection, "recovery_overdue_finish", batch=act.BATCH):
        ended += sum(row.recipients for row in rows)
    done = await act.act(connection, by, planned.plan, watch)
    # Last: what was finished just now has notified its senders.
    [held] = await database.fetch(connection, "recovery_notices_hold")
    return Beginning(planned.plan, len(missed), held.n, ended, done)


async def _missed(connection: database.Connection) -> list[Any]:
    """The schedules whose next occurrence has passed: the server that was lost has sent it, or no server has."""
    found: list[Any] = []
    while rows := await database.fetch(
        connection, "schedule_due", now=None, after=found[-1].id if found else "", batch=_EVERY_SCHEDULE
    ):
        found += rows
    return found
