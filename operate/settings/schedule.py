"""schedule — mail that is sent regularly, or once at a later time: added, listed, enabled, disabled, removed

Guarantees: mail that cannot be sent is refused when it is added. Nothing is sent here: workers do, from then on. Each
    change of a schedule has its preview, audit row and undo (operate/settings/change.py). One message for later is
    mail: it has a preview here, and `pillarbox queue` deletes it.
Raises: Refused and its kinds.
See: docs/how-to/send/schedule-mail.md; queued/schedule.py; sql/schema/16_schedule.sql.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from operate.errors import NotNow, NotThere, Refused
from operate.queue.query import clock
from operate.settings import schedule_mail
from operate.settings.change import Asked, changing
from operate.shapes.settings import (
    ScheduleChanged,
    ScheduledOnce,
    ScheduledOncePreview,
    SettingsPreview,
)
from operate.transports import check_option
from shared import cron
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    from pathlib import Path

    from operate.queue.act import By
    from operate.settings.schedule_mail import Mail

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_CLOCKS_APART: Final = timedelta(days=1)  # at most, between PostgreSQL's and this host's
_LEAST, _MOST = -9, 9  # priorities, as in the table


@dataclass(frozen=True, slots=True)
class When:
    """When and how to send. every: a cron expression, or at: a time, in this time zone."""

    id: str | None
    every: str | None
    at: str | None
    timezone: str
    transport: str
    priority: int


def check(folder: Path, when: When) -> None:
    """Refuse what cannot be used, before the message is read; by PostgreSQL's clock a time is judged afterwards."""
    if not _LEAST <= when.priority <= _MOST:
        why = f"priority: {when.priority} is out of range; allowed: {_LEAST} to {_MOST}"
        raise Refused(why, f"--{why}")
    if when.id is None and when.every is not None:
        raise Refused(
            "id: missing; allowed: with every a name to list and remove it by",
            "schedule add: ID is missing; allowed: with --every a name to list and remove it by",
        )
    if when.id is not None and not _ID.fullmatch(when.id):
        why = f"{show(when.id)}; allowed: 1 to 64 letters, digits, underscores and hyphens"
        raise Refused(f"id: {why}", f"ID: {why}")
    check_option(folder, [when.transport])
    now = datetime.now(UTC)
    if when.every is not None:
        schedule_mail.first_occurrence(when.every, when.timezone, now)
    else:
        schedule_mail.instant(when.at or "", when.timezone, now - _CLOCKS_APART)


async def recurring(
    connection: database.Connection, by: By, when: When, mail: Mail, *, dry_run: bool = False
) -> ScheduleChanged | SettingsPreview:
    """Add a schedule; when it comes first."""
    assert when.id is not None  # noqa: S101 - as `check` says
    assert when.every is not None  # noqa: S101
    occurrence = schedule_mail.first_occurrence(when.every, when.timezone, await clock(connection))
    async with changing(connection, by, Asked("schedule add", when.id), dry_run=dry_run) as change:
        made = await database.fetch(
            connection,
            "schedule_add",
            id=when.id,
            cron=when.every,
            timezone=when.timezone,
            sender=mail.sender,
            recipients=list(mail.recipients),
            content=schedule_mail.recurring(mail.content),
            transportid=when.transport,
            priority=when.priority,
            smtputf8=mail.smtputf8,
            next_at=occurrence,
        )
        if not made:
            why = f"there is a schedule {show(when.id)} already; remove it first, or use another ID"
            raise NotNow(f"id: {why}", f"ID: {why}")
    return change.preview or ScheduleChanged(audit=change.audit, id=when.id, next=occurrence)


async def once(
    connection: database.Connection, when: When, mail: Mail, *, dry_run: bool = False
) -> ScheduledOnce | ScheduledOncePreview:
    """Queue one message for later; with an id, the same again queues nothing more."""
    at = schedule_mail.instant(when.at or "", when.timezone, await clock(connection))
    async with connection.transaction(force_rollback=dry_run):
        [row] = await database.fetch(
            connection,
            "schedule_once",
            sender=mail.sender,
            recipients=list(mail.recipients),
            content=mail.content,
            key=when.id and f"schedule:{when.id}:once",
            deliver_at=at,
            transportid=when.transport,
            priority=when.priority,
            jobid=when.id,
            smtputf8=mail.smtputf8,
        )
    if dry_run:
        return ScheduledOncePreview(at=at, sender=mail.sender, recipients=list(mail.recipients), size=len(mail.content))
    return ScheduledOnce(message=row.message, at=at)


async def listed(connection: database.Connection) -> list[database.Row]:
    """Every schedule, the next one first; rows have the fields of shapes.settings.Schedule."""
    return await database.fetch(connection, "schedule_list")


async def enable(
    connection: database.Connection, by: By, name: str, *, dry_run: bool = False
) -> ScheduleChanged | SettingsPreview:
    """Send it again; occurrences that were missed while it was disabled are not sent."""
    async with changing(connection, by, Asked("schedule enable", name), dry_run=dry_run) as change:
        known = await _known(connection, name)
        try:
            occurrence = cron.following(known.cron, known.timezone, await clock(connection))
        except cron.CronRefused as error:
            raise Refused(f"{name}: {error}; remove it and add it again") from None
        await database.fetch(connection, "schedule_enable", id=name, next_at=occurrence)
    return change.preview or ScheduleChanged(audit=change.audit, id=name, next=occurrence)


async def disable(
    connection: database.Connection, by: By, name: str, *, dry_run: bool = False
) -> ScheduleChanged | SettingsPreview:
    """Send it no more."""
    async with changing(connection, by, Asked("schedule disable", name), dry_run=dry_run) as change:
        await _known(connection, name)
        await database.fetch(connection, "schedule_pause", id=name)
    return change.preview or ScheduleChanged(audit=change.audit, id=name)


async def remove(
    connection: database.Connection, by: By, name: str, *, dry_run: bool = False
) -> ScheduleChanged | SettingsPreview:
    """Forget it."""
    async with changing(connection, by, Asked("schedule remove", name), dry_run=dry_run) as change:
        await _known(connection, name)
        await database.fetch(connection, "schedule_remove", id=name)
    return change.preview or ScheduleChanged(audit=change.audit, id=name)


async def _known(connection: database.Connection, name: str) -> database.Row:
    rows = {row.id: row for row in await listed(connection)}
    if name not in rows:
        why = f"schedule {show(name)} does not exist"
        raise NotThere(why, f"ID: {why}; allowed: {', '.join(rows) or 'there are none'}")
    return rows[name]
