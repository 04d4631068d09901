"""schedules — mail that is sent regularly, or once at a later time

See: operate/settings/schedule.py, which does it, for the command line too; docs/how-to/send/schedule-mail.md.
"""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from httpd.access.caller import Caller
from httpd.access.needs import needs
from httpd.routes.acting import DryRun, Explained, Reason, looking
from operate.errors import Refused
from operate.queue.act import By
from operate.settings import schedule, schedule_mail
from operate.settings.schedule import When
from operate.shapes.settings import (
    Schedule,
    ScheduleChanged,
    ScheduledOnce,
    ScheduledOncePreview,
    SettingsPreview,
)

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])

Operator = Annotated[Caller, needs("operate")]


class Scheduling(Explained):
    """What to send, and when: every, or at."""

    id: str | None = Field(None, description="Its name, needed with `every`; with `at`, the same again queues no more.")
    every: str | None = Field(None, max_length=1000, description="A cron expression, such as 0 9 * * mon.")
    at: str | None = Field(None, max_length=100, description="Once, at this time: 2026-12-24T18:00.")
    timezone: str = Field("UTC", max_length=100, description="The time zone of `every` or `at`.")
    sender: str = Field(alias="from", max_length=1000, description="The envelope sender; empty is the null sender.")
    to: list[str] = Field(min_length=1, max_length=1000, description="The addresses.")
    message: str = Field(min_length=1, description="The message by RFC 5322, its header first.")
    transport: str = Field("default", max_length=255, description="A transport of queued.yaml.")
    priority: int = Field(0, ge=-9, le=9, description="-9 to 9; above 0 urgent, below 0 bulk.")


@router.get("", name="list")
async def listed(request: Request, caller: Annotated[Caller, needs("read")]) -> list[Schedule]:
    """Every schedule, the next one first."""
    async with looking(request, caller) as connection:
        return [Schedule.from_row(row) for row in await schedule.listed(connection)]


@router.post("")
async def add(
    request: Request, caller: Operator, body: Scheduling
) -> ScheduleChanged | SettingsPreview | ScheduledOnce | ScheduledOncePreview:
    """Send mail regularly, or once at a later time; that needs the role sender too."""
    if (body.every is None) == (body.at is None):
        raise Refused("either every or at is needed")
    when = When(body.id, body.every, body.at, body.timezone, body.transport, body.priority)
    schedule.check(request.app.state.service.files.folder, when)
    by = body.by()
    mail = schedule_mail.checked(body.sender, body.to, body.message.encode(), "message")
    async with looking(request, caller) as connection:
        if body.every is not None:
            return await schedule.recurring(connection, by, when, mail, dry_run=body.dry_run)
        return await schedule.once(connection, when, mail, dry_run=body.dry_run)


@router.post("/{id}/enable")
async def enable(
    request: Request,
    id: str,  # noqa: A002 - its name in the path
    caller: Operator,
    dry_run: DryRun = False,  # noqa: FBT002 - a query
    reason: Reason = None,
) -> ScheduleChanged | SettingsPreview:
    """Send it again, from its next occurrence on."""
    by = By(reason=reason)
    async with looking(request, caller) as connection:
        return await schedule.enable(connection, by, id, dry_run=dry_run)


@router.post("/{id}/disable")
async def disable(
    request: Request,
    id: str,  # noqa: A002 - its name in the path
    caller: Operator,
    dry_run: DryRun = False,  # noqa: FBT002 - a query
    reason: Reason = None,
) -> ScheduleChanged | SettingsPreview:
    """Stop sending it until it is enabled."""
    by = By(reason=reason)
    async with looking(request, caller) as connection:
        return await schedule.disable(connection, by, id, dry_run=dry_run)


@router.delete("/{id}")
async def remove(
    request: Request,
    id: str,  # noqa: A002 - its name in the path
    caller: Operator,
    dry_run: DryRun = False,  # noqa: FBT002 - a query
    reason: Reason = None,
) -> ScheduleChanged | SettingsPreview:
    """Forget a schedule; mail it has queued is still sent."""
    by = By(reason=reason)
    async with looking(request, caller) as connection:
        return await schedule.remove(connection, by, id, dry_run=dry_run)
