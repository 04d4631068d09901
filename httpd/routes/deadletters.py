"""deadletters — mail that finished without success: listed, shown, sent once more

See: operate/deadletters.py, which does it, for the command line too; docs/how-to/operate/handle-dead-letters.md.
"""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from httpd.access.caller import Caller
from httpd.access.needs import needs
from httpd.routes.acting import Body, Limit, enough, looking, span
from operate import deadletters
from operate.deadletters import Done, Wanted
from operate.errors import Refused
from operate.shapes.asked import Page, RequeuedSoFar
from operate.shapes.mail import DeadLetter, DeadLetterWithTries, RequeuePreview
from shared import masking
from shared.mail.results import DEAD

router = APIRouter(prefix="/v1/deadletters", tags=["deadletters"])

_MOST: int = 10_000  # sent once more by a request

Result = Annotated[list[str], Query(description=f"Only with these results: {', '.join(DEAD)}.")]
Domain = Annotated[str | None, Query(max_length=255, description="Only for recipients of this domain.")]
Since = Annotated[str | None, Query(max_length=30, description="Only what finished within: 1d, 2h30m.")]


class Requeuing(Body):
    """What to send once more: by number, or all that match."""

    ids: list[str] = Field([], max_length=_MOST, description="Numbers in the archive, or ids of messages.")
    results: list[str] = Field([], max_length=100, description=f"Only with these results: {', '.join(DEAD)}.")
    domain: str | None = Field(None, max_length=255, description="Only for recipients of this domain.")
    since: str | None = Field(None, max_length=30, description="Only what finished within: 1d, 2h30m.")
    limit: int | None = Field(None, ge=1, le=_MOST, description=f"At most so many, the oldest first ({_MOST}).")
    dry_run: bool = Field(False, description="Change nothing, and answer what would be sent once more.")


@router.get("", name="list")
async def listed(
    request: Request,
    caller: Annotated[Caller, needs("read")],
    result: Result = [],  # noqa: B006 - FastAPI copies it
    domain: Domain = None,
    since: Since = None,
    after: Annotated[str | None, Query(max_length=100, description="From here on: `next` of the page before.")] = None,
    limit: Limit = 50,
) -> Page[DeadLetter]:
    """Dead letters, the latest first."""
    wanted, before = _wanted(result, domain, since), None if after is None else _place(after)
    async with looking(request, caller) as connection:
        rows = await deadletters.listed(connection, wanted, limit, before=before)
    more = f"{rows[-1].finished.astimezone(UTC).isoformat()}/{rows[-1].id}" if len(rows) == limit else None
    return Page[DeadLetter](data=[DeadLetter.from_row(row) for row in rows], next=more)


@router.get("/count")
async def count(
    request: Request,
    caller: Annotated[Caller, needs("read")],
    result: Result = [],  # noqa: B006 - FastAPI copies it
    domain: Domain = None,
    since: Since = None,
) -> dict[str, int]:
    """How many dead letters there are with each result."""
    wanted = _wanted(result, domain, since)
    async with looking(request, caller) as connection:
        return await deadletters.counted(connection, wanted)


@router.get("/{id}")
async def show(request: Request, id: str, caller: Annotated[Caller, needs("read")]) -> DeadLetterWithTries:  # noqa: A002 - its name in the path
    """One dead letter, by its number in the archive or the id of its message, with every try."""
    async with looking(request, caller) as connection:
        return (await deadletters.show(connection, id)).as_shape()


@router.post("/requeue")
async def requeue(
    request: Request, caller: Annotated[Caller, needs("operate")], body: Requeuing
) -> RequeuePreview | RequeuedSoFar:
    """Send dead letters once more, each once: the same request does the rest of what a request did not come to."""
    wanted = _wanted(body.results, body.domain, body.since)
    async with looking(request, caller) as connection:
        plan = await deadletters.plan(connection, body.ids, wanted, body.limit)
        plan = deadletters.Plan(plan.ids[:_MOST], plan.timeline)
        if body.dry_run:
            return RequeuePreview(wanted=len(plan.ids), ids=plan.ids)
        done = await deadletters.requeue(connection, plan, Done(), enough(request))
    return RequeuedSoFar(wanted=len(plan.ids), requeued=done.requeued, gone=done.gone, rest=done.rest)


def _wanted(results: list[str], domain: str | None, since: str | None) -> Wanted:
    for each in results:
        if each not in DEAD:
            raise Refused(f"result: {masking.show(each)}; allowed: {', '.join(DEAD)}")
    begins = None if since is None else datetime.now(UTC) - min(span(since, "since"), deadletters.LONGEST)
    return Wanted(begins, results or None, deadletters.domains(domain))


def _place(after: str) -> tuple[datetime, int]:
    finished, _, id_ = after.partition("/")
    try:
        at, number = datetime.fromisoformat(finished), int(id_)
    except ValueError:
        raise Refused(f"after: {masking.show(after)} is not the `next` of a page") from None
    if at.tzinfo is None or not 0 <= number < 2**63:
        raise Refused(f"after: {masking.show(after)} is not the `next` of a page")
    return at, number
