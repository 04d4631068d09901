"""history — the page of what is over: reports as they are kept, and finished mail that fits a condition

Guarantees: reads only. A page comes however much is archived: a search ends soon after LOOKED, and says how far back it
    has looked; no statement takes longer than PATIENCE.
See: operate/queue/finished.py; docs/how-to/observe/trace-a-message.md; docs/how-to/observe/report.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from starlette.routing import Route

from httpd.console.forms import query_of
from httpd.console.queue import PATIENCE, TOO_LONG, words
from httpd.problems import Problem
from operate.condition.words import words_of
from operate.queue.finished import place_of, search
from shared.config.condition.fields import FINISHED
from shared.config.condition.tree import ConditionError
from shared.mail.results import RESULTS
from shared.postgres import database

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.site import Site

PAGE: Final = 50  # recipients
LOOKED: Final = 0.3  # seconds
_PERIODS: Final = 30
_ROWS: Final = 100  # of each section


class History:
    """The page."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Its addresses."""
        return [Route("/console/history", self.searched), Route("/console/history/report", self.report)]

    async def searched(self, request: Request) -> Response:
        """What is finished and fits, the latest first; without a condition the latest reports."""
        session = await self._site.signed_in(request, "read")
        query = query_of(request)
        condition, after = query.one("condition"), query.one("after")
        try:
            place = place_of(after)
        except ValueError:
            raise Problem(HTTPStatus.NOT_FOUND, "after: this is not the next page of a list") from None
        values: dict[str, Any] = {
            "condition": condition, "after": after, "error": "", "mail": [], "more": None, "until": None,
            "words": words(FINISHED, result=RESULTS), "periods": [],
        }  # fmt: skip
        status = HTTPStatus.OK
        try:
            async with self._site.visitors.acting(session, PATIENCE) as connection:
                if condition.strip():
                    found = await search(connection, words_of(condition), place, limit=PAGE, seconds=LOOKED)
                    values |= {"mail": found.rows}
                    if found.more:
                        place = found.more
                        at = f"{place.finished.astimezone(UTC).isoformat()}/{place.id}"
                        values |= {"more": urlencode({"condition": condition, "after": at}), "until": place.finished}
                else:
                    values["periods"] = await database.fetch(connection, "report_periods", limit=_PERIODS)
        except ConditionError as error:
            values["error"], status = str(error), HTTPStatus.UNPROCESSABLE_ENTITY
        except database.CANCELLED:
            values["error"], status = TOO_LONG, HTTPStatus.SERVICE_UNAVAILABLE
        return self._site.page("history", session, status=status, **values)

    async def report(self, request: Request) -> Response:
        """The sections of one report."""
        session = await self._site.signed_in(request, "read")
        query = query_of(request)
        try:
            since, until = (datetime.fromisoformat(query.one(name)) for name in ("since", "until"))
        except ValueError:
            raise Problem(HTTPStatus.NOT_FOUND, "since, until: these are not the times of a report") from None
        async with self._site.visitors.acting(session, PATIENCE) as connection:
            found = await database.fetch(connection, "report_sections", since=since, until=until)
        if not found:
            raise Problem(
                HTTPStatus.NOT_FOUND,
                "no stored report covers exactly this period; allowed: the periods that /console/history lists",
            )
        return self._site.page("report", session, sections=found, since=since, until=until, most=_ROWS)
