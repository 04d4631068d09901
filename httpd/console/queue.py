"""queue — the pages of queued mail: what fits a condition, its groups, and one recipient with all that happened to it

Guarantees: reads only. No statement takes longer than PATIENCE, and a count ends at MOST_COUNTED:
    a page comes however long the queue is, and says what it leaves out. What is wrong with a condition is pointed out
    beside its field.
See: operate/queue/look.py and history.py; docs/how-to/operate-in-a-browser.md.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from starlette.routing import Route

from httpd.console.acting import VERBS
from httpd.console.forms import query_of
from httpd.console.numbers import number
from operate.condition.words import words_of
from operate.errors import NotThere, Refused
from operate.queue import history, look
from operate.queue.query import asked
from shared.config.condition.fields import FIELDS, STATES
from shared.config.condition.tree import ConditionError
from shared.postgres import database

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.site import Site
    from operate.queue.query import Query
    from operate.sign_in import Session

PAGE: Final = 50  # recipients
PATIENCE: Final = 3.0  # seconds for a statement
MOST_COUNTED: Final = 10_000
_COUNTING: Final = 0.3  # seconds
_GROUPS: Final = 100
_EVENTS: Final = 500
_TOO_LONG: Final = f"PostgreSQL has not found it within {PATIENCE:g} s; narrow the condition"
#: Conditions that are often asked, by the words of their link.
VIEWS: Final = {
    "all": "",
    "overdue": "state=ACTIVE due<now-1m",
    "deferred": "state=DEFER",
    "held": "state=HOLD",
    "tried often": "tries>5",
    "old": "age>1d",
}
#: What a condition is completed with.
WORDS: Final = (*(f"state={state}" for state in STATES), *(f"{name}=" for name in FIELDS))
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


class Queue:
    """The pages."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [Route("/console/queue", self.listed), Route("/console/queue/{id:int}", self.recipient)]

    async def listed(self, request: Request) -> Response:
        """Recipients that fit, in order of arrival, or how many there are by the values of a column."""
        session = await self._site.signed_in(request, "read")
        query = query_of(request)
        condition, by, after = query.one("condition"), query.one("by").strip(), number(query.one("after") or "0")
        values: dict[str, Any] = {
            "condition": condition, "by": by, "after": after, "error": "", "mail": [], "groups": [], "more": None,
            "count": "", "views": VIEWS, "words": WORDS, "columns": COLUMNS, "verbs": VERBS,
        }  # fmt: skip
        try:
            async with self._site.visitors.acting(session, PATIENCE) as connection:
                words = words_of(condition)
                if by:
                    names = [name.strip() for name in by.split(",")]
                    look.check_columns(names)
                    values["groups"] = await look.grouped(connection, names, words, _GROUPS)
                else:
                    asking = await asked(connection, words)
                    found = [
                        row
                        async for portion in look.recipients(connection, asking, after=after, limit=PAGE + 1)
                        for row in portion
                    ]
                    values |= {"mail": found[:PAGE], "now": asking.now}
                    if len(found) > PAGE:
                        values["more"] = urlencode({"condition": condition, "after": found[PAGE - 1].id})
            if not by:
                values["count"] = await self._count(session, asking, len(found) if not after else None)
        except (ConditionError, Refused) as error:
            values["error"] = error.reason if isinstance(error, Refused) else str(error)
            return self._site.page("queue", session, status=HTTPStatus.UNPROCESSABLE_ENTITY, **values)
        except database.CANCELLED:
            values["error"] = _TOO_LONG
            return self._site.page("queue", session, status=HTTPStatus.SERVICE_UNAVAILABLE, **values)
        return self._site.page("queue", session, **values)

    async def recipient(self, request: Request) -> Response:
        """One recipient, wherever it is: envelope, header, tries, and who did what."""
        session = await self._site.signed_in(request, "read")
        id_ = str(number(str(request.path_params["id"])))
        async with self._site.visitors.acting(session) as connection:
            try:
                [seen] = await look.show(connection, id_)
            except NotThere:
                seen = None
            events = await history.trace(connection, id_, _EVENTS)
        own = [each for each in events if str(each.id) == id_]
        return self._site.page(
            "recipient", session, id=id_, seen=seen, tries=seen.tries if seen else [], events=own,
            others=sorted({each.id for each in events} - {int(id_)}), verbs=VERBS,
        )  # fmt: skip

    async def _count(self, session: Session, asking: Query, known: int | None) -> str:
        """How many fit, as far as they are counted."""
        if known is not None and known <= PAGE:
            return f"{known:,}"
        try:
            async with self._site.visitors.acting(session, _COUNTING) as connection:
                [row] = await asking.fetch(connection, "queue_count_some", most=MOST_COUNTED + 1)
        except database.CANCELLED:
            return f"not counted within {_COUNTING:g} s"
        return f"more than {MOST_COUNTED:,}" if row.recipients > MOST_COUNTED else f"{row.recipients:,}"
