"""queue — queued mail: listed, counted, shown, changed

See: operate/queue/, which does it, for the command line too.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from httpd.access.caller import Caller
from httpd.access.needs import needs
from httpd.routes.acting import MOST, Acting, After, Condition, Limit, acted, address, looking, span
from operate.condition.words import words_of
from operate.queue import history, look, verbs
from operate.queue.act import Change
from operate.queue.query import asked
from operate.shapes.asked import Acted, Counted, Page
from operate.shapes.mail import Destination, Event, Group, Preview, Recipient, RecipientWithTries

router = APIRouter(prefix="/v1/queue", tags=["queue"])

Reader = Annotated[Caller, needs("read")]
Operator = Annotated[Caller, needs("operate")]


class Holding(Acting):
    """What to hold, and where."""

    quarantine: str | None = Field(None, min_length=1, max_length=255, description="Its id; null: in none.")


class Copying(Acting):
    """What to release a copy of, and to whom."""

    to: str | None = Field(None, description="To this address; null: to the recipient.")


class Delaying(Acting):
    """What to delay, and for how long."""

    wait: str = Field(alias="for", description="How long: 30m, 2h, 1d.")


class Ranking(Acting):
    """What to make more or less urgent."""

    priority: int = Field(ge=-9, le=9, description="-9 to 9; above 0 urgent, below 0 bulk.")


class Moving(Acting):
    """What to move, and where."""

    transport: str | None = Field(None, min_length=1, max_length=255, description="A transport of queued.yaml.")
    partition: str | None = Field(None, min_length=1, max_length=255, description="A partition id of smtpd.yaml.")


@router.get("", name="list")
async def listed(
    request: Request, caller: Reader, condition: Condition = "", after: After = 0, limit: Limit = 50
) -> Page[Recipient]:
    """Recipients that match, in order of arrival."""
    async with looking(request, caller) as connection:
        asking = await asked(connection, words_of(condition))
        rows = [
            row
            async for portion in look.recipients(connection, asking, after=after, limit=limit)
            for row in portion
        ]  # fmt: skip
    more = str(rows[-1].id) if len(rows) == limit else None
    return Page[Recipient](data=[Recipient.from_row(row) for row in rows], next=more)


@router.get("/count")
async def count(request: Request, caller: Reader, condition: Condition = "") -> Counted:
    """How many recipients match."""
    async with looking(request, caller) as connection:
        return Counted(recipients=await look.count(connection, await asked(connection, words_of(condition))))


@router.get("/groups")
async def groups(
    request: Request,
    caller: Reader,
    by: Annotated[str, Query(max_length=1000, description="Columns with commas between them.")],
    condition: Condition = "",
    limit: Limit = 50,
) -> list[Group]:
    """How many recipients match by the values of columns, the largest group first."""
    names = [name.strip() for name in by.split(",")]
    look.check_columns(names)
    async with looking(request, caller) as connection:
        return await look.grouped(connection, names, words_of(condition), limit)


@router.get("/shape")
async def shape(
    request: Request, caller: Reader, condition: Condition = "", limit: Limit = 20
) -> list[Destination]:  # fmt: skip
    """Recipients that match by destination and age, the fullest destination first."""
    async with looking(request, caller) as connection:
        return await look.shape(connection, words_of(condition), limit)


@router.get("/{id}")
async def show(request: Request, id: str, caller: Reader) -> list[RecipientWithTries]:  # noqa: A002 - its name in the path
    """One recipient by its number, or each of a message by its id or <Message-ID>: tries, header, and why it waits."""
    async with looking(request, caller) as connection:
        return [each.as_shape() for each in await look.show(connection, id)]


@router.get("/{id}/trace")
async def trace(
    request: Request,
    id: str,  # noqa: A002 - its name in the path
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=10 * MOST, description="At most so many events.")] = MOST,
) -> list[Event]:
    """Everything that ever happened to a message."""
    async with looking(request, caller) as connection:
        return [Event.from_row(row) for row in await history.trace(connection, id, limit)]


@router.post("/hold")
async def hold(request: Request, caller: Operator, body: Holding) -> Preview | Acted:
    """Put recipients on hold."""
    return await _act(request, caller, body, verbs.hold(body.quarantine, body.reason))


@router.post("/release")
async def release(request: Request, caller: Operator, body: Acting) -> Preview | Acted:
    """Release held recipients: they are tried now."""
    return await _act(request, caller, body, verbs.release())


@router.post("/copy")
async def copy(request: Request, caller: Operator, body: Copying) -> Preview | Acted:
    """Release a copy of held recipients, and leave them where they are."""
    return await _act(request, caller, body, verbs.copy(None if body.to is None else address(body.to, "to")))


@router.post("/retry")
async def retry(request: Request, caller: Operator, body: Acting) -> Preview | Acted:
    """Try recipients now instead of when they are due."""
    return await _act(request, caller, body, verbs.retry())


@router.post("/delay")
async def delay(request: Request, caller: Operator, body: Delaying) -> Preview | Acted:
    """Try recipients later."""
    return await _act(request, caller, body, verbs.delay(span(body.wait, "for")))


@router.post("/priority")
async def priority(request: Request, caller: Operator, body: Ranking) -> Preview | Acted:
    """Make recipients more or less urgent."""
    return await _act(request, caller, body, verbs.priority(body.priority))


@router.post("/move")
async def move(request: Request, caller: Operator, body: Moving) -> Preview | Acted:
    """Give recipients another transport or partition."""
    folder = request.app.state.service.files.folder
    return await _act(request, caller, body, verbs.move(folder, body.transport, body.partition))


@router.post("/bounce")
async def bounce(request: Request, caller: Operator, body: Acting) -> Preview | Acted:
    """Bounce recipients and notify their senders."""
    return await _act(request, caller, body, verbs.bounce())


@router.post("/delete")
async def delete(request: Request, caller: Operator, body: Acting) -> Preview | Acted:
    """Delete recipients without a notification."""
    return await _act(request, caller, body, verbs.delete())


async def _act(request: Request, caller: Caller, body: Acting, change: Change) -> Preview | Acted:
    async with looking(request, caller) as connection:
        return await acted(request, connection, change, body, body.words())
