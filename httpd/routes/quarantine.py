"""quarantine — held mail: the quarantines, the mail in them, one message made safe to look at, and decisions

Guarantees: a message as it was submitted is an attachment alone, in a sandbox of the browser.
See: operate/quarantine/, which does it, for the command line too; docs/how-to/review/review-quarantined-mail.md.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import StreamingResponse

from httpd.access.caller import Caller
from httpd.access.needs import needs
from httpd.routes.acting import Acting, After, Body, Condition, Limit, acted, address, looking
from operate.condition.words import words_of
from operate.errors import NotThere
from operate.quarantine import content, held
from operate.quarantine import digest as digests
from operate.quarantine.access import Access, admit, narrowed
from operate.quarantine.decide import MOST_ADDRESSES
from operate.quarantine.decide import delete as deleting
from operate.quarantine.decide import release as releasing
from operate.quarantine.rescan import CHANGE, PORTION, Checks, check_of, portion
from operate.queue.act import Change, Done, Span, begin
from operate.shapes.asked import Acted, Page
from operate.shapes.mail import Digest, Held, HeldMessage, Preview, Quarantine, RescanPart
from shared.postgres import database

router = APIRouter(prefix="/v1/quarantine", tags=["quarantine"])

Reviewer = Annotated[Caller, needs("review")]
#: Whatever a message contains, a browser keeps it as a file, and runs nothing of it.
_SAFELY: dict[str, str] = {
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Releasing(Acting):
    """What to release, and to whom."""

    to: list[str] = Field([], max_length=MOST_ADDRESSES, description="To these addresses instead of its recipient.")


class Rescanning(Acting):
    """What to check again."""

    release: bool = Field(False, description="Release what is clean.")
    limit: int = Field(PORTION, ge=1, le=PORTION, description="At most so many recipients, in order of arrival.")


class Digesting(Body):
    """Of which quarantines."""

    quarantines: list[str] = Field(
        [], max_length=1000, description="Their ids; none: all whose notice names an address."
    )
    dry_run: bool = Field(False, description="Send nothing, and answer what would be sent.")


@router.get("", name="list")
async def quarantines(request: Request, caller: Reviewer) -> list[Quarantine]:
    """Every quarantine: the fullest first."""
    async with looking(request, caller) as connection:
        return await held.quarantines(connection, await _access(request, connection))


@router.get("/mail", name="list_mail")
async def mail(
    request: Request, caller: Reviewer, condition: Condition = "", after: After = 0, limit: Limit = 50
) -> Page[Held]:  # fmt: skip
    """Held mail that matches, in order of arrival."""
    async with looking(request, caller) as connection:
        access = await _access(request, connection)
        asking = (await narrowed(connection, access, "list", words_of(condition), everything=True)).asking
        found = await held.mail(connection, asking, after=after, limit=limit)
    return Page[Held](data=found, next=str(found[-1].id) if len(found) == limit else None)


@router.get("/mail/{id}")
async def show(
    request: Request,
    id: str,  # noqa: A002 - its name in the path
    caller: Reviewer,
    part: Annotated[int | None, Query(ge=1, le=1000, description="The text of this part, as `parts` has them.")] = None,
) -> HeldMessage:
    """One held message, by a recipient's number or its own id: envelope, header, text and parts, made safe."""
    async with looking(request, caller) as connection:
        return await held.message(connection, await _access(request, connection), id, part)


@router.get(
    "/mail/{id}/raw",
    response_class=StreamingResponse,
    responses={200: {"description": "The message by RFC 5322.", "content": {"message/rfc822": {"schema": {"type": "string", "format": "binary"}}}}},  # noqa: E501
)  # fmt: skip
async def raw(request: Request, id: str, caller: Reviewer) -> StreamingResponse:  # noqa: A002 - its name in the path
    """One held message exactly as it was submitted, as a file. Do not open it where it could do harm."""
    async with looking(request, caller) as connection:
        message = await content.held(connection, await _access(request, connection), id)
        first = await content.piece(connection, message, 1)
    if first is None:
        raise NotThere(f"quarantine export: message {message} has no body")
    headers = {**_SAFELY, "Content-Disposition": f'attachment; filename="{message}.eml"'}
    octets = content.pieces(message, first, lambda: looking(request, caller))
    return StreamingResponse(octets, headers=headers, media_type="message/rfc822")


@router.post("/release")
async def release(request: Request, caller: Reviewer, body: Releasing) -> Preview | Acted:
    """Deliver held mail."""
    return await _decided(request, caller, body, "release", releasing([address(each, "to") for each in body.to]))


@router.post("/delete")
async def delete(request: Request, caller: Reviewer, body: Acting) -> Preview | Acted:
    """Delete held mail without a notification."""
    return await _decided(request, caller, body, "delete", deleting())


@router.post("/rescan")
async def rescan(request: Request, caller: Reviewer, body: Rescanning) -> RescanPart:
    """Ask the content check again about held mail, a portion in a request; release what is clean if that is said."""
    service = request.app.state.service
    async with looking(request, caller) as connection:
        settings = await service.files.smtpd()
        access = await admit(connection, settings)
        check = check_of(settings, service.files.rules)
        asked = await narrowed(connection, access, "rescan", body.words(), everything=body.all)
        [counted] = await asked.asking.fetch_of_all(connection, "queue_count", statuses=["HOLD"])
        done = Done(0, min(counted.recipients, body.limit))
        if body.release and not body.dry_run and done.wanted:
            done.audit = await begin(connection, body.by(), CHANGE, str(asked.asking.condition), done.wanted)
        checks = Checks(check)
        try:
            highest, rescanned = await portion(connection, asked, checks, done, Span(0, counted.last, body.limit))
        finally:
            await checks.close()
        if done.audit:
            await database.fetch(connection, "audit_finish", id=done.audit)
    return RescanPart(
        audit=done.audit or None,
        wanted=done.wanted,
        clean=sum(each.clean for each in rescanned),
        done=done.done,
        data=rescanned,
        next=None if highest is None or highest >= counted.last else str(highest),
    )


@router.post("/digest")
async def digest(request: Request, caller: Reviewer, body: Digesting) -> list[Digest]:
    """Send reviewers a digest of new held mail, once per period; that needs the role sender too."""
    async with looking(request, caller) as connection:
        settings = await request.app.state.service.files.smtpd()
        access = await admit(connection, settings)
        chosen = digests.chosen(access, body.quarantines)
        if not body.dry_run:
            digests.check_spooling(access)
        return [await digests.digest(connection, settings, each, send=not body.dry_run) for each in chosen]


async def _decided(request: Request, caller: Caller, body: Acting, verb: str, change: Change) -> Preview | Acted:
    async with looking(request, caller) as connection:
        access = await _access(request, connection)
        words = (await narrowed(connection, access, verb, body.words(), everything=body.all)).words
        return await acted(request, connection, change, body, words)


async def _access(request: Request, connection: database.Connection) -> Access:
    return await admit(connection, await request.app.state.service.files.smtpd())
