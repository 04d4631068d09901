"""audit — the commands and requests that changed mail or settings, and undoing them

See: operate/queue/history.py, operate/queue/undo.py, operate/settings/undo.py.
"""

from typing import Annotated

from fastapi import APIRouter, Request

from httpd.access.caller import Caller
from httpd.access.needs import needs
from httpd.routes.acting import Before, Limit, Number, Reasoned, done_shape, enough, looking
from operate.queue import history
from operate.queue import undo as operation
from operate.settings import undo as of_settings
from operate.shapes.asked import Acted, Page
from operate.shapes.mail import Command, UndoPreview
from operate.shapes.settings import SettingsPreview, SettingsUndone

router = APIRouter(prefix="/v1/audit", tags=["audit"])


@router.get("", name="list")
async def listed(
    request: Request,
    caller: Annotated[Caller, needs("read")],
    after: Before = None,
    limit: Limit = 50,
) -> Page[Command]:
    """What changed mail or settings, the latest first."""
    async with looking(request, caller) as connection:
        rows = await history.audit(connection, None, limit, before=after)
    more = str(rows[-1].id) if len(rows) == limit else None
    return Page[Command](data=[Command.from_row(row) for row in rows], next=more)


@router.get("/{id}")
async def show(request: Request, id: Number, caller: Annotated[Caller, needs("read")]) -> Command:  # noqa: A002 - its name in the path
    """One of them: while it is under way, how far it has come."""
    async with looking(request, caller) as connection:
        [row] = await history.audit(connection, id, 1)
    return Command.from_row(row)


@router.post("/{id}/undo")
async def undo(
    request: Request,
    id: Number,  # noqa: A002 - its name in the path
    caller: Annotated[Caller, needs("operate")],
    body: Reasoned,
) -> UndoPreview | Acted | SettingsPreview | SettingsUndone:
    """Change back what one of them changed, as far as it still can be."""
    by = body.by()
    async with looking(request, caller) as connection:
        if await of_settings.is_of_settings(connection, id):
            return await of_settings.undo(connection, by, id, dry_run=body.dry_run)
        plan = await operation.plan(connection, id)
        if body.dry_run:
            return plan.preview()
        done = await operation.undo(connection, by, plan, after=body.after or 0, enough=enough(request))
    return done_shape(done)
