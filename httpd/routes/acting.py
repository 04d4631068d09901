"""acting — what requests that look and act have in common: a connection with limits, the condition, the answer

Owns: the body of a request that acts; a change within the time that a request may take.
Guarantees: a statement takes no longer than timeout.query. A change stops after the batch in which timeout.change
    passes, its audit row has the exact counts, and the answer says how to go on.
See: operate/queue/act.py.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from time import monotonic
from typing import Annotated

from fastapi import Path as PathParameter
from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field

from httpd.access.caller import Caller
from httpd.problems import Problem
from operate.condition.words import after, words_of
from operate.errors import Refused
from operate.queue import act as operation
from operate.queue.act import By, Change, Done, Enough
from operate.shapes.asked import Acted
from operate.shapes.mail import Preview
from shared.config.units import format_duration, parse_typed_duration
from shared.mail.address import AddressRefused, parse
from shared.mail.message import Address
from shared.masking import show
from shared.postgres import database

MOST: int = 1000  # in a page of a list
LARGEST: int = 2**63 - 1
_CONDITION: str = "Ids, or a condition such as `state=HOLD recipientdomain=example.com age>1h` (docs/reference/condition.md)."  # fmt: skip  # noqa: E501

Condition = Annotated[str, Query(max_length=10_000, description=f"{_CONDITION} Empty: all.")]
Limit = Annotated[int, Query(ge=1, le=MOST, description="At most so many.")]
After = Annotated[int, Query(ge=0, le=LARGEST, description="From here on: `next` of the page before.")]
Before = Annotated[int | None, Query(ge=0, le=LARGEST, description="From here on: `next` of the page before.")]
#: The same for requests without a body.
DryRun = Annotated[bool, Query(description="Change nothing, and answer what would be changed.")]
Reason = Annotated[str | None, Query(max_length=1000, description="Why, for the audit.")]
Number = Annotated[int, PathParameter(ge=0, le=LARGEST)]


class Body(BaseModel):
    """A body: these keys and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Trying(Body):
    """What every request that changes something may say."""

    dry_run: bool = Field(False, description="Change nothing, and answer what would be changed.")


class Explained(Trying):
    """What a request may say that has no reason of its own."""

    reason: str | None = Field(None, max_length=1000, description="Why, for the audit.")

    def by(self) -> By:
        """Why; who is the connection's principal."""
        return By(reason=self.reason)


class Reasoned(Explained):
    """What every request that changes mail may say."""

    after: int | None = Field(None, ge=0, le=LARGEST, description="Go on after this recipient: `next` of the answer.")


class Acting(Reasoned):
    """On what to act."""

    condition: str = Field("", max_length=10_000, description=_CONDITION)
    all: bool = Field(False, description="Everything, without a condition.")
    limit: int | None = Field(None, ge=1, le=10**9, description="At most so many recipients, in order of arrival.")

    def words(self) -> list[str]:
        """The condition's words; none where neither a condition nor everything is asked for."""
        words = words_of(self.condition)
        return after(words, self.after) if words or self.all else words


@asynccontextmanager
async def looking(request: Request, caller: Caller) -> AsyncIterator[database.Connection]:
    """A connection for the caller, whose statements take no longer than allowed."""
    most = request.app.state.service.config.timeout.query
    try:
        async with caller.acting(most.total_seconds()) as connection:
            yield connection
    except database.CANCELLED:
        why = f"PostgreSQL took longer than {format_duration(most)} (timeout.query); narrow the condition, or try again"
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, why) from None


async def acted(
    request: Request, connection: database.Connection, change: Change, asked: Acting, words: Sequence[str]
) -> Preview | Acted:
    """Change what these words select, or say what would be changed."""
    by = asked.by()
    plan = await operation.plan(connection, change, words, everything=asked.all, limit=asked.limit)
    if asked.dry_run:
        return await plan.preview(connection)
    return done_shape(await operation.act(connection, by, plan, enough=enough(request)))


def enough(request: Request) -> Enough:
    """Whether a change that begins now has taken as long as it may."""
    ends = monotonic() + request.app.state.service.config.timeout.change.total_seconds()
    return lambda: monotonic() > ends


def done_shape(done: Done) -> Acted:
    """How far a change has come."""
    rest = 0 if done.cut is None else max(0, done.wanted - done.done)
    return Acted(**done.as_shape().model_dump(), next=None if done.cut is None else str(done.cut), rest=rest)


def span(text: str, where: str) -> timedelta:
    """A duration above zero, as in the configuration, with its unit."""
    try:
        found = parse_typed_duration(text)
    except ValueError as error:
        raise Refused(f"{where}: {error}") from None
    if not found:
        raise Refused(f"{where}: {show(text)} is too short; allowed: a duration above zero")
    return found


def address(text: str, where: str) -> Address:
    """An address of a body."""
    try:
        return parse(text)
    except AddressRefused as error:
        raise Refused(f"{where}: {show(text)}: {error}; allowed: local-part@domain") from None
