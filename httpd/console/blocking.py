"""blocking — the pages on which reviewers block senders, list them and unblock them

Guarantees: GET changes nothing. The sender is that of a held message, as its row has it: no form names it.
See: operate/quarantine/block.py.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from starlette.routing import Route

from httpd.console.forms import form_of, query_of
from httpd.console.numbers import number
from httpd.console.pages import seen
from httpd.console.visitor import may
from httpd.problems import Problem
from operate.errors import Refused
from operate.quarantine import block, held
from operate.quarantine.access import admit
from shared.config.units import parse_typed_duration

if TYPE_CHECKING:
    from datetime import timedelta

    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.forms import Form
    from httpd.console.site import Site
    from operate.sign_in import Session

_PAGE: Final = 100
#: For how long, as the form offers it.
_SPANS: Final = {"1d": "a day", "7d": "a week", "30d": "30 days", "": "without an end"}


class Blocking:
    """The pages."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [
            Route("/console/blocked", self.listed),
            Route("/console/blocked/end", self.end, methods=["POST"]),
            Route("/console/held/{id:digits}/block", self.ask),
            Route("/console/held/{id:digits}/block", self.block, methods=["POST"]),
        ]

    async def listed(self, request: Request) -> Response:
        """The blocked senders, each with its reason and the reviewer who blocked it."""
        session = await self._site.signed_in(request, "review")
        query = query_of(request)
        async with self._site.visitors.acting(session) as connection:
            rows = await block.listed(connection, after=query.one("after"), limit=_PAGE + 1)
        more = urlencode({"after": rows[_PAGE - 1].target}) if len(rows) > _PAGE else None
        asked_for = block.is_asked_for(await self._site.service.files.smtpd())
        return self._site.page(
            "review/blocked", session, blocked=rows[:_PAGE], more=more, new=query.one("new"), asked_for=asked_for
        )

    async def ask(self, request: Request) -> Response:
        """The form with a reason."""
        session = await self._site.signed_in(request, "review")
        return await self._form(request, session, query_of(request))

    async def block(self, request: Request) -> Response:
        """Block a sender."""
        session = await self._site.signed_in(request, "review")
        form = await form_of(request, session)
        id_ = number(str(request.path_params["id"]))
        try:
            keep = _span(form.one("for"))
            async with self._site.visitors.acting(session) as connection:
                await admit(connection, await self._site.service.files.smtpd())
                whole = form.one("whole") == "yes"
                target = await block.block(connection, id_, whole=whole, reason=form.one("reason"), keep=keep)
        except Refused as error:
            return await self._form(request, session, form, error.reason)
        return seen(f"/console/blocked?{urlencode({'new': target})}")

    async def end(self, request: Request) -> Response:
        """Take a block back."""
        session = await self._site.signed_in(request, "review")
        form = await form_of(request, session)
        async with self._site.visitors.acting(session) as connection:
            await block.unblock(connection, form.one("target"))
        return seen("/console/blocked")

    async def _form(self, request: Request, session: Session, form: Form, error: str = "") -> Response:
        settings = await self._site.service.files.smtpd()
        async with self._site.visitors.acting(session) as connection:
            access = await admit(connection, settings)
            shown = await held.message(connection, access, str(number(str(request.path_params["id"]))))
        return self._site.page(
            "review/block", session, status=HTTPStatus.UNPROCESSABLE_ENTITY if error else HTTPStatus.OK, mail=shown,
            error=error, reason=form.one("reason"), spans=_SPANS, asked_for=block.is_asked_for(settings),
            whole=may(session, "operate"),
        )  # fmt: skip


def _span(text: str) -> timedelta | None:
    """For how long; Problem 422."""
    if text not in _SPANS:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"for: allowed: {', '.join(each for each in _SPANS if each)}")
    return parse_typed_duration(text) if text else None
