"""release — ends a recovery: what is still held becomes what it was before

Owns: the last step of a recovery, and its figures.
Guarantees: only what `begin` held is released; mail that was on hold before stays there. Killed at any instant, the
    same command does the rest.
Raises: Refused and its kinds.
See: sql/README.md, "A restored queue".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from operate.errors import NotNow
from operate.queue import undo
from operate.queue.act import unwatched
from shared.postgres import database

if TYPE_CHECKING:
    from datetime import datetime

    from operate.queue.act import By, Done, Watch
    from operate.queue.undo import UndoPlan


@dataclass(frozen=True, slots=True)
class Recovery:
    """A recovery under way. held: on hold before it began or by it; waiting: of these by it; settled: by `settle`."""

    begun: datetime
    held: int
    waiting: int
    settled: int
    notices: int
    plans: list[UndoPlan]


async def look(connection: database.Connection) -> Recovery | None:
    """The recovery under way; None without one."""
    begun = await database.fetch(connection, "recovery_begun")
    if not begun:
        return None
    [counted] = await database.fetch(connection, "recovery_figures", first=begun[0].id)
    [notices] = await database.fetch(connection, "recovery_notices")
    plans = [await undo.plan(connection, row.id) for row in begun]
    return Recovery(begun[0].ts, counted.held, counted.waiting, counted.settled, notices.held, plans)


async def plan(connection: database.Connection) -> Recovery:
    """What would be released."""
    found = await look(connection)
    if found is None:
        raise NotNow("recover: no recovery is under way")
    return found


async def release(
    connection: database.Connection, by: By, planned: Recovery, *, drop_notices: bool, watch: Watch = unwatched
) -> list[Done]:
    """Put back what the recovery held, and have its notifications sent or forgotten."""
    # Notifications first: once all is released no recovery is under way for which to run this again.
    await database.fetch(connection, "recovery_notices_drop" if drop_notices else "recovery_notices_release")
    return [await undo.undo(connection, by, each, watch) for each in planned.plans]
