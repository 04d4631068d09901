"""suppressions — addresses and domains that get no mail: added, listed, removed

See: operate/settings/suppress.py, which does it, for the command line too; docs/how-to/deliver/suppression.md.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from httpd.access.caller import Caller
from httpd.access.needs import needs
from httpd.routes.acting import DryRun, Limit, Reason, Trying, looking, span
from operate.queue.act import By
from operate.settings import suppress
from operate.shapes.asked import Page
from operate.shapes.settings import SettingsPreview, Suppressed, Suppression, Target

router = APIRouter(prefix="/v1/suppressions", tags=["suppressions"])

Operator = Annotated[Caller, needs("operate")]

_MOST: int = 10_000  # in a request


class Suppressing(Trying):
    """Whom, why and for how long."""

    targets: list[str] = Field(min_length=1, max_length=_MOST, description="Addresses and domains.")
    reason: str = Field("by an operator", min_length=1, max_length=1000, description="Why; senders may read it.")
    keep: str | None = Field(None, description="For how long, such as 30d; null: for ever.")


@router.get("", name="list")
async def listed(
    request: Request,
    caller: Annotated[Caller, needs("read")],
    after: Annotated[str, Query(max_length=1000, description="From here on: `next` of the page before.")] = "",
    limit: Limit = 50,
    noted: Annotated[bool, Query(description="Also what failed, but not yet often enough.")] = False,  # noqa: FBT002 - a query
) -> Page[Suppression]:
    """Who gets no mail, in the order of names."""
    async with looking(request, caller) as connection:
        rows = await suppress.portion(connection, noted=noted, after=after, limit=limit)
    more = rows[-1].target if len(rows) == limit else None
    return Page[Suppression](data=[Suppression.from_row(row) for row in rows], next=more)


@router.post("")
async def add(request: Request, caller: Operator, body: Suppressing) -> Suppressed | SettingsPreview:
    """Suppress addresses and domains: all of them, or none where one is not valid."""
    targets = [suppress.target(text, f"targets[{number}]") for number, text in enumerate(body.targets)]
    keep = None if body.keep is None else span(body.keep, "keep")
    async with looking(request, caller) as connection:
        return await suppress.add(connection, By(), targets, reason=body.reason, keep=keep, dry_run=body.dry_run)


@router.delete("/{target}")
async def remove(
    request: Request,
    target: str,
    caller: Operator,
    dry_run: DryRun = False,  # noqa: FBT002 - a query
    reason: Reason = None,
) -> Target | SettingsPreview:
    """Let an address or a domain get mail again."""
    by = By(reason=reason)
    async with looking(request, caller) as connection:
        return await suppress.remove(connection, by, target, dry_run=dry_run)
