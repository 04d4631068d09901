"""sign-in — the pages by which people sign in and out, by password, link or provider, and see their sessions

Guarantees: GET changes nothing, so that a link which a mail scanner follows stays good. Whether a name is known no page
    says.
See: httpd/console/visitor.py; docs/how-to/review/review-in-a-browser.md.
"""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from starlette.routing import Route

from httpd import problems
from httpd.access.tokens import ProviderAway
from httpd.console.forms import form_of, query_of
from httpd.console.pages import seen
from httpd.console.visitor import ASKING, delete_asking, delete_cookie, may, set_asking, set_cookie
from httpd.problems import Problem, unavailable
from operate import sign_in
from operate.errors import Refused

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.site import Site

_LONGEST: Final = 1000  # characters of the page to go on to


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
            Route("/console/sign-in/provider", self.ask_provider),
            Route("/console/sign-in/done", self.answered),
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
        query = query_of(request)
        return self._form(request, query.one("next"), end=await self._end(request) if query.one("out") else "")

    async def sign_in(self, request: Request) -> Response:
        """Begin a session."""
        form = await form_of(request, None)
        try:
            cookie, _ = await self._site.visitors.sign_in(request, form.one("name"), form.one("password"))
        except Problem as problem:
            if problem.status_code not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS}:
                raise
            return self._form(request, form.one("next"), form.one("name"), problem)
        answer = seen(_own(form.one("next")))
        set_cookie(request, answer, cookie)
        return answer

    async def ask_provider(self, request: Request) -> Response:
        """Send the browser to the provider; nothing is changed but what the browser remembers of it."""
        provider = self._site.visitors.provider(request)
        if provider is None:
            raise Problem(HTTPStatus.NOT_FOUND, "httpd.yaml has no oidc.client")
        after, secret = _own(query_of(request).one("next")[:_LONGEST]), secrets.token_urlsafe(32)
        try:
            answer = seen(await provider.address(secret, after))
        except ProviderAway:
            return self._form(request, after, problem=unavailable("the provider does not answer; try again later"))
        set_asking(request, answer, secret)
        return answer

    async def answered(self, request: Request) -> Response:
        """Begin a session by the provider's answer."""
        query = query_of(request)
        given = {name: query.one(name) for name in ("state", "code", "iss", "error") if query.every(name)}
        try:
            secret = request.cookies.get(ASKING, "")
            cookie, after = await self._site.visitors.sign_in_named(request, secret, given)
        except Problem as problem:
            answer = self._form(request, "", problem=problem)
        else:
            answer = seen(_own(after))
            set_cookie(request, answer, cookie)
        delete_asking(answer)
        return answer

    async def show_link(self, request: Request) -> Response:
        """The form for a new password."""
        token = query_of(request).one("token")
        async with self._site.service.pool.connection() as connection:
            person, expires = await sign_in.link_of(connection, token)
        return self._site.page("account/link", None, link=token, person=person, expires=expires, error="")

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
            return self._site.page("account/link", None, status=HTTPStatus.UNPROCESSABLE_ENTITY, **values)
        answer = seen("/console/")
        set_cookie(request, answer, cookie)
        return answer

    async def account(self, request: Request) -> Response:
        """The sessions of this person, with their places."""
        session = await self._site.signed_in(request)
        async with self._site.visitors.acting(session) as connection:
            sessions = await sign_in.own(connection)
        return self._site.page("account/sessions", session, sessions=sessions)

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
        answer = seen("/console/sign-in?out=yes")
        delete_cookie(answer)
        return answer

    async def _end(self, request: Request) -> str:
        """Where the provider ends its own session of this person; empty where that is not known."""
        provider = self._site.visitors.provider(request)
        try:
            return "" if provider is None else await provider.end()
        except ProviderAway:
            return ""

    def _form(
        self, request: Request, after: str, name: str = "", problem: Problem | None = None, end: str = ""
    ) -> Response:
        provider = self._site.visitors.provider(request)
        answer = self._site.page(
            "account/sign_in", None, status=HTTPStatus.OK if problem is None else problem.status_code,
            after=_own(after), name=name, error="" if problem is None else str(problem.detail),
            provider="" if provider is None else urlsplit(provider.issuer).netloc,
            ask=urlencode({"next": _own(after)}), end=end,
        )  # fmt: skip
        if problem is not None:
            answer.headers.update(problem.headers or {})
        return answer


def _own(path: str) -> str:
    """Where to go on: a page of the console, and nowhere else."""
    plain = path.isascii() and path.isprintable() and "\\" not in path and "//" not in path
    return path if plain and path.startswith("/console/") else "/console/"
