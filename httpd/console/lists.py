"""lists — the pages of what operators and admins have set: each lists, adds and ends, with who and why

Guarantees: GET changes nothing. What a form asks for is done by the verb of operate/ that the command line and the API
    use, with the same refusals. A secret is shown once, on the answer to the form that made it.
See: httpd/console/listed.py for what each list has.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.routing import Route

from httpd.console.forms import form_of, query_of
from httpd.console.listed import LISTS, Done, Place
from httpd.console.pages import seen
from httpd.console.visitor import may
from httpd.problems import Problem
from operate.errors import Refused
from operate.queue.act import By

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.forms import Form
    from httpd.console.listed import List
    from httpd.console.site import Site
    from operate.sign_in import Session


class Lists:
    """The pages."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Their addresses: one for each list."""
        made = []
        for each in LISTS:
            path = f"/console/{each.name}"
            made.append(Route(path, self._shown(each)))
            if each.acts or each.fields:
                made.append(Route(path, self._changed(each), methods=["POST"]))
        return made

    def _shown(self, what: List) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            session = await self._site.signed_in(request, what.see)
            return await self._page(what, session, query_of(request))

        return show

    def _changed(self, what: List) -> Callable[[Request], Awaitable[Response]]:
        async def change(request: Request) -> Response:
            session = await self._site.signed_in(request, what.change)
            form = await form_of(request, session)
            act, _, key = form.one("act").partition(" ")
            try:
                by = By(reason=form.one("reason").strip() or None)
                async with self._site.visitors.acting(session) as connection:
                    place = Place(connection, self._site.service.files, str(request.base_url).rstrip("/"))
                    if act == "add" and what.fields:
                        done = await what.add(place, by, form)
                    elif act in what.acts:
                        done = await what.act(place, by, act, key)
                    else:
                        allowed = ", ".join([*what.acts, *(["add"] if what.fields else [])])
                        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"act: allowed: {allowed}")
            except Refused as error:
                return await self._page(what, session, form, error=error.reason)
            if done.secret:
                return await self._page(what, session, form, done=done)
            asked = {"said": done.said, "audit": str(done.audit or "")}
            return seen(f"/console/{what.name}?{urlencode({name: value for name, value in asked.items() if value})}")

        return change

    async def _page(
        self, what: List, session: Session, form: Form, *, error: str = "", done: Done | None = None
    ) -> Response:
        said = done or Done(form.one("said")[:200] if not error else "")
        audit = form.one("audit")
        async with self._site.visitors.acting(session) as connection:
            place = Place(connection, self._site.service.files, "")
            rows, after = await what.rows(place, form.one("after")[:1000])
        return self._site.page(
            "listing", session, status=HTTPStatus.UNPROCESSABLE_ENTITY if error else HTTPStatus.OK, list=what,
            rows=rows, more=urlencode({"after": after}) if after else None, error=error, done=said,
            changes=may(session, what.change),
            given={each.name: form.one(each.name) for each in what.fields} if error else {},
            audit=audit if audit.isascii() and audit.isdecimal() else "",
        )  # fmt: skip
