"""decided — how far a decision or another change of mail came, who else decided what, and taking it back

Guarantees: GET changes nothing. What can be undone has a button for who may: who did it, and operators. A change that
    goes on is shown as it goes on: the page loads itself again.
See: operate/queue/undo.py; httpd/changes.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from starlette.routing import Route

from httpd.console.forms import form_of, query_of
from httpd.console.numbers import number
from httpd.console.pages import seen
from httpd.console.visitor import may
from operate.queue import history, undo
from operate.queue.act import By
from operate.settings import undo as of_settings
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.site import Site
    from operate.queue.act import Done, Watch

MOST: Final = 50  # recipients of which a page says who decided otherwise
_AGAIN: Final = "2"  # seconds
#: Where people go on after a change, by the word in the address.
_FROM: Final = {"": "/console/held"}
_LISTS: Final = frozenset({"queue", "audit", "suspends", "suppressions", "schedules"})


class Decided:
    """The pages."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [
            Route("/console/decided/{id:digits}", self.show),
            Route("/console/decided/{id:digits}/undo", self.undo, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """How far it came, and what became of the rest."""
        session = await self._site.signed_in(request, "review")
        query = query_of(request)
        ids = [number(each) for each in query.one("ids").split(",") if each][:MOST]
        async with self._site.visitors.acting(session) as connection:
            [row] = await history.audit(connection, number(str(request.path_params["id"])), 1)
            others = await decisions(connection, ids, row.id)
            undoes = None if row.undoes is None else (await history.audit(connection, row.undoes, 1))[0]
        own = row.who == session.principal or may(session, "operate")
        goes_on = row.finished is None and self._site.service.changes.has(row.id)
        settings = of_settings.is_verb(row.verb)
        can = (row.verb in undo.UNDOABLE or settings) and row.undone is None and row.done > 0 and not goes_on
        back = query.one("from") if query.one("from") in {*_FROM, *_LISTS} else ""
        answer = self._site.page(
            "decided", session, decision=row, others=others, undo=own and can, goes_on=goes_on, undoes=undoes,
            back=_FROM.get(back, f"/console/{back}"), came_from=back, settings=settings,
        )  # fmt: skip
        if goes_on:
            answer.headers["Refresh"] = _AGAIN
        return answer

    async def undo(self, request: Request) -> Response:
        """Change back what still can be."""
        session = await self._site.signed_in(request, "review")
        form = await form_of(request, session)

        id_ = number(str(request.path_params["id"]))
        async with self._site.visitors.acting(session) as connection:
            if await of_settings.is_of_settings(connection, id_):
                undone = await of_settings.undo(connection, By(), id_)
                return to(getattr(undone, "audit", id_), came_from=form.one("from"))

        async def work(watch: Watch) -> Done:
            async with self._site.visitors.acting(session) as connection:
                plan = await undo.plan(connection, id_)
                return await undo.undo(connection, By(), plan, watch)

        audit = await self._site.service.changes.begun(request, work)
        return to(audit, came_from=form.one("from"))


def to(audit: int, ids: Sequence[int] = (), came_from: str = "") -> Response:
    """Go on at the page of a change."""
    asked = {"ids": ",".join(map(str, ids[:MOST])), "from": came_from}
    query = urlencode({name: value for name, value in asked.items() if value})
    return seen(f"/console/decided/{audit}" + (f"?{query}" if query else ""))


async def decisions(connection: database.Connection, ids: Sequence[int], than: int | None = None) -> list[Any]:
    """What was decided last about each of these that is held no more; `than`: by another command than this one."""
    if not ids:
        return []
    rows = await database.fetch(connection, "quarantine_decisions", ids=list(ids))
    return [row for row in rows if row.audit != than]
