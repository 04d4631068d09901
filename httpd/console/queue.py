"""queue — the pages of queued mail: what fits a condition, its groups, and one recipient with all that happened to it

Guarantees: mail is only read; what is kept are views of a person's own. No statement takes longer than PATIENCE, and a
    count ends at MOST_COUNTED: a page comes however long the queue is, and says what it leaves out. What is wrong with
    a condition is pointed out beside its field.
See: operate/queue/look.py and history.py; docs/how-to/operate/operate-in-a-browser.md.
"""

from __future__ import annotations

from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from starlette.routing import Route

from httpd.console.acting import VERBS
from httpd.console.forms import form_of, query_of
from httpd.console.numbers import number
from httpd.console.pages import seen
from operate import sign_in
from operate.condition.words import words_of
from operate.errors import NotThere, Refused
from operate.queue import history, look
from operate.queue.query import asked
from shared.config.condition.fields import FIELDS, STATES
from shared.config.condition.tree import ConditionError
from shared.config.condition.values import written
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.site import Site
    from operate.queue.query import Query
    from operate.sign_in import Session
    from shared.config.condition.fields import Field

PAGE: Final = 50  # recipients
PATIENCE: Final = 3.0  # seconds for a statement
MOST_COUNTED: Final = 10_000
LOOKED: Final = 0.25  # seconds, after which no further stretch of the queue is looked at unless that is asked for
_LEAST_COUNTING: Final = 0.05
_GROUPS: Final = 100
_KNOWN: Final = 100  # values of a column
_EVENTS: Final = 500
TOO_LONG: Final = f"PostgreSQL has not found it within {PATIENCE:g} s; narrow the condition"
#: Conditions that are often asked, by the words of their link.
VIEWS: Final = {
    "all": "",
    "overdue": "state=ACTIVE due<now-1m",
    "deferred": "state=DEFER",
    "held": "state=HOLD",
    "tried often": "tries>5",
    "old": "age>1d",
}
#: What can be grouped by, as the form offers it; any other column can be typed.
COLUMNS: Final = (
    "recipientdomain",
    "state",
    "last_error",
    "partition",
    "transport",
    "senderdomain",
    "jobid",
    "priority",
)


def words(fields: Mapping[str, Field], **known: Iterable[str]) -> list[str]:
    """What a condition is completed with: its columns, and those of their values that are known."""
    values = {**known, **({"state": STATES} if "state" in fields else {})}
    return [
        *(f"{name}={written(value)}" for name, every in values.items() for value in every),
        *(f"{name}=" for name in fields if name not in values),
        *("not ", "or "),
    ]


class Queue:
    """The pages."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [
            Route("/console/queue", self.listed),
            Route("/console/queue/views", self.keep, methods=["POST"]),
            Route("/console/queue/{id:digits}", self.recipient),
        ]

    async def listed(self, request: Request) -> Response:
        """Recipients that fit, in order of arrival, or how many there are by the values of a column."""
        session = await self._site.signed_in(request, "read")
        query = query_of(request)
        condition, by, after = query.one("condition"), query.one("by").strip(), number(query.one("after") or "0")
        whole, began = bool(query.one("whole")), monotonic()
        values: dict[str, Any] = {
            "condition": condition, "by": by, "after": after, "error": "", "mail": [], "groups": [], "more": None,
            "count": "", "whole": "", "views": VIEWS, "words": [], "columns": COLUMNS, "verbs": VERBS, "own": [],
        }  # fmt: skip
        try:
            async with self._site.visitors.acting(session, PATIENCE) as connection:
                values |= await self._known(connection)
                given = words_of(condition)
                if by:
                    names = [name.strip() for name in by.split(",")]
                    look.check_columns(names)
                    values["groups"] = await look.grouped(connection, names, given, _GROUPS)
                else:
                    asking = await asked(connection, given)
                    seconds = None if whole else LOOKED
                    found, reached = await look.first(connection, asking, after=after, limit=PAGE + 1, seconds=seconds)
                    if reached is not None:
                        values["whole"] = urlencode({"condition": condition, "after": after, "whole": "yes"})
                    values |= {"mail": found[:PAGE], "now": asking.now}
                    if len(found) > PAGE:
                        values["more"] = urlencode({"condition": condition, "after": found[PAGE - 1].id})
            if not by and not values["whole"]:
                left = max(LOOKED - (monotonic() - began), _LEAST_COUNTING)
                values["count"] = await self._count(session, asking, len(found) if not after else None, left)
        except (ConditionError, Refused) as error:
            values["error"] = error.reason if isinstance(error, Refused) else str(error)
            return self._site.page("queue/mail", session, status=HTTPStatus.UNPROCESSABLE_ENTITY, **values)
        except database.CANCELLED:
            values["error"] = TOO_LONG
            return self._site.page("queue/mail", session, status=HTTPStatus.SERVICE_UNAVAILABLE, **values)
        return self._site.page("queue/mail", session, **values)

    async def keep(self, request: Request) -> Response:
        """Keep a condition and its grouping under a name, for this person; or forget it."""
        session = await self._site.signed_in(request, "read")
        form = await form_of(request, session)
        name, condition, by = form.one("name").strip(), form.one("condition"), form.one("by").strip()
        async with self._site.visitors.acting(session) as connection:
            if form.one("act") == "forget":
                await sign_in.forget_view(connection, name)
            else:
                await sign_in.keep_view(connection, name, condition, by)
        return seen(f"/console/queue?{urlencode({'condition': condition, 'by': by})}")

    async def recipient(self, request: Request) -> Response:
        """One recipient, wherever it is: envelope, header, tries, and who did what."""
        session = await self._site.signed_in(request, "read")
        id_ = str(number(str(request.path_params["id"])))
        async with self._site.visitors.acting(session) as connection:
            try:
                [row] = await look.show(connection, id_)
            except NotThere:
                row = None
            events = await history.trace(connection, id_, _EVENTS)
        own = [each for each in events if str(each.id) == id_]
        return self._site.page(
            "queue/recipient", session, id=id_, seen=row, tries=row.tries if row else [], events=own,
            others=sorted({each.id for each in events} - {int(id_)}), verbs=VERBS,
        )  # fmt: skip

    async def _known(self, connection: database.Connection) -> dict[str, Any]:
        """What conditions are completed with, and the person's own views."""
        known: dict[str, list[str]] = {"partition": [], "transport": []}
        for row in await database.fetch(connection, "web_known", limit=_KNOWN):
            known[row.name].append(row.value)
        return {"words": words(FIELDS, **known), "own": await sign_in.views(connection)}

    async def _count(self, session: Session, asking: Query, known: int | None, seconds: float) -> str:
        """How many fit, as far as they are counted in this time."""
        if known is not None and known <= PAGE:
            return f"{known:,}"
        try:
            async with self._site.visitors.acting(session, seconds) as connection:
                [row] = await asking.fetch(connection, "queue_count_some", most=MOST_COUNTED + 1)
        except database.CANCELLED:
            return "not counted in time"
        return f"more than {MOST_COUNTED:,}" if row.recipients > MOST_COUNTED else f"{row.recipients:,}"
