"""sign-in — the pages by which people sign in and out, choose a password by a link, and see their sessions

Guarantees: GET changes nothing, so that a link which a mail scanner follows stays good. Whether a name is known no page
    says.
See: httpd/console/visitor.py; docs/how-to/review-in-a-browser.md.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.routing import Route

from httpd import problems
from httpd.console.forms import form_of, query_of
from httpd.console.pages import seen
from httpd.console.visitor import delete_cookie, may, set_cookie
from httpd.problems import Problem
from operate import sign_in
from operate.errors import Refused

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.site import Site


class SignIn:
    """The pages."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [
            Route("/console/", self.begin),
            Route("/console/sign-in", self.show),
            Route("/console/sign-in", self.sign_in, methods=["POST"]),
            Route("/console/link", self.show_link),
            Route("/console/link", self.use_link, methods=["POST"]),
            Route("/console/account", self.account),
            Route("/console/sign-out", self.sign_out, methods=["POST"]),
            Route("/console/sign-out-everywhere", self.sign_out_everywhere, methods=["POST"]),
        ]

    async def begin(self, request: Request) -> Response:
        """The page that this person works with."""
        session = await self._site.signed_in(request)
        places = {"operate": "now", "review": "quarantine", "read": "now"}
        return seen(f"/console/{next((place for scope, place in places.items() if may(session, scope)), 'account')}")

    async def show(self, request: Request) -> Response:
        """The form for name and password."""
        if await self._site.visitors.session(request) is not None:
            return seen("/console/")
        return self._form(query_of(request).one("next"))

    async def sign_in(self, request: Request) -> Response:
        """Begin a session."""
        form = await form_of(request, None)
        try:
            cookie, _ = await self._site.visitors.sign_in(request, form.one("name"), form.one("password"))
        except Problem as problem:
            if problem.status_code not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS}:
                raise
            answer = self._form(form.one("next"), form.one("name"), str(problem.detail), problem.status_code)
            answer.headers.update(problem.headers or {})
            return answer
        answer = seen(_own(form.one("next")))
        set_cookie(request, answer, cookie)
        return answer

    async def show_link(self, request: Request) -> Response:
        """The form for a new password."""
        token = query_of(request).one("token")
        async with self._site.service.pool.connection() as connection:
            person, expires = await sign_in.link_of(connection, token)
        return self._site.page("link", None, link=token, person=person, expires=expires, error="")

    async def use_link(self, request: Request) -> Response:
        """Choose the password."""
        form = await form_of(request, None)
        token = form.one("link")
        async with self._site.service.pool.connection() as connection:
            person, expires = await sign_in.link_of(connection, token)
        try:
            password = sign_in.checked_password(form.one("password"), form.one("again"))
            cookie = await self._site.visitors.use_link(request, token, password)
        except Refused as error:
            if problems.of(error).status_code != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            values = {"link": token, "person": person, "expires": expires, "error": error.reason}
            return self._site.page("link", None, status=HTTPStatus.UNPROCESSABLE_ENTITY, **values)
        answer = seen("/console/")
        set_cookie(request, answer, cookie)
        return answer

    async def account(self, request: Request) -> Response:
        """The sessions of this person, with their places."""
        session = await self._site.signed_in(request)
        async with self._site.visitors.acting(session) as connection:
            sessions = await sign_in.own(connection)
        return self._site.page("account", session, sessions=sessions)

    async def sign_out(self, request: Request) -> Response:
        """End this session."""
        session = await self._site.signed_in(request)
        await form_of(request, session)
        return await self._ended(request, session.id)

    async def sign_out_everywhere(self, request: Request) -> Response:
        """End every session of this person."""
        session = await self._site.signed_in(request)
        await form_of(request, session)
        return await self._ended(request, None)

    async def _ended(self, request: Request, number: int | None) -> Response:
        session = await self._site.signed_in(request)
        async with self._site.visitors.acting(session) as connection:
            await sign_in.end(connection, number)
        answer = seen("/console/sign-in")
        delete_cookie(answer)
        return answer

    def _form(self, after: str, name: str = "", error: str = "", status: int = 200) -> Response:
        return self._site.page("sign_in", None, status=status, after=_own(after), name=name, error=error)


def _own(path: str) -> str:
    """Where to go on: a page of the console, and nowhere else."""
    plain = path.isascii() and path.isprintable() and "\\" not in path and "//" not in path
    return path if plain and path.startswith("/console/") else "/console/"
