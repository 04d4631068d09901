"""suspends — mail that must wait: added, listed, removed

See: operate/settings/suspend.py, which does it, for the command line too; docs/how-to/deliver/suspend-a-destination.md.
"""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field

from httpd.access.caller import Caller
from httpd.access.needs import needs
from httpd.routes.acting import DryRun, Number, Reason, Trying, looking, span
from operate.queue.act import By
from operate.settings import suspend
from operate.shapes.settings import Removed, SettingsPreview, Suspend, Suspended

router = APIRouter(prefix="/v1/suspends", tags=["suspends"])

Operator = Annotated[Caller, needs("operate")]
Values = Annotated[list[str], Field(max_length=1000)]


class Suspending(Trying):
    """Which mail, why and for how long: mail that fits every field that is given."""

    destination: Values = Field([], description="To these domains; .example.com is every domain below that one.")
    transport: Values = Field([], description="Over these transports of queued.yaml.")
    sender: Values = Field([], description="From these domains.")
    tenant: Values = Field([], description="Of these tenants (metadata `tenant`).")
    jobid: Values = Field([], description="With these jobids.")
    site: Values = Field([], description="To these groups of mail exchangers.")
    source: Values = Field([], description="From these source addresses of ours.")
    all: bool = Field(False, description="All mail, instead of the fields above.")
    reason: str = Field(min_length=1, max_length=1000, description="Why; it appears in last_error of the mail.")
    wait: str | None = Field(None, alias="for", description="How long: 1h, 2d; null: until it is removed.")


@router.get("", name="list")
async def listed(request: Request, caller: Annotated[Caller, needs("read")]) -> list[Suspend]:
    """What is suspended by request, by command or by rule."""
    async with looking(request, caller) as connection:
        return [Suspend.from_row(row) for row in await suspend.active(connection)]


@router.post("")
async def add(request: Request, caller: Operator, body: Suspending) -> Suspended | SettingsPreview:
    """Suspend mail."""
    given = body.model_dump(exclude={"all", "reason", "wait", "dry_run"})
    selected = suspend.selection(request.app.state.service.files.folder, given, everything=body.all)
    seconds = None if body.wait is None else span(body.wait, "for").total_seconds()
    async with looking(request, caller) as connection:
        return await suspend.add(
            connection, By(), selected, reason=body.reason, who=None, seconds=seconds, dry_run=body.dry_run
        )


@router.delete("")
async def remove_all(
    request: Request,
    caller: Operator,
    dry_run: DryRun = False,  # noqa: FBT002 - a query
    reason: Reason = None,
) -> Removed | SettingsPreview:
    """Let all suspended mail go again, at once."""
    by = By(reason=reason)
    async with looking(request, caller) as connection:
        return await suspend.remove(connection, by, None, dry_run=dry_run)


@router.delete("/{id}")
async def remove(
    request: Request,
    id: Number,  # noqa: A002 - its name in the path
    caller: Operator,
    dry_run: DryRun = False,  # noqa: FBT002 - a query
    reason: Reason = None,
) -> Removed | SettingsPreview:
    """Let mail go again, at once."""
    by = By(reason=reason)
    async with looking(request, caller) as connection:
        return await suspend.remove(connection, by, [id], dry_run=dry_run)
