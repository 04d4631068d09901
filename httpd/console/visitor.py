"""visitor — who looks at a page: the session of its cookie, and what its person may

Owns: the cookie; the judgement by roles; signing in, with limits on wrong passwords.
Guarantees: sign-ins that fail are counted in PostgreSQL, for all processes of httpd, and before they are judged, so
    that many at once get no further than one after the other. The cookie goes to /console/ alone, so that a message's
    body comes without it; no script reads it; it goes over TLS only, but on this host itself. A name that is not known
    costs as much as a wrong password. PostgreSQL judges again by the person, for whom each transaction acts.
See: RFC 6265 section 5.2; operate/sign_in.py.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from httpd.access.provider import Provider, SignInRefused
from httpd.access.tokens import ProviderAway, TokenRefused
from httpd.problems import Problem, unavailable
from operate import sign_in
from operate.errors import Refused
from operate.keys import SCOPES
from operate.sign_in import Limit
from shared.config.smtpd.authentication import Hashing as HashingSettings
from shared.masking import show
from shared.observe import events
from shared.postgres import acting
from shared.security.saslprep import NotPrepared, prepared
from smtpd.envelope import places
from smtpd.login.passwords import OURS, Hashing, HashingBusy, make_hash, unknown_hash

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.service import Service
    from operate.sign_in import Session
    from shared.postgres import database

COOKIE: Final = "pillarbox_session"
ASKING: Final = "pillarbox_asking"
_PATH: Final = "/console/"
_BACK: Final = "/console/sign-in/done"
_ASKED: Final = 600  # seconds that a browser remembers a sign-in at the provider
_NO_PROVIDER: Final = "people sign in here by their passwords alone: httpd.yaml has no oidc.client"
_OF_A_NAME: Final = 10  # times the failures of one address: further away from locking its owner out
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
#: The roles that each kind of page is for: those of the API's scopes, and what no key may.
ROLES: Final = {**SCOPES, "administer": frozenset({"admin"})}
_WRONG: Final = "the name or the password is wrong"


class Visitors:
    """Sessions, and signing in to one."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._hashing = Hashing(HashingSettings())

    async def session(self, request: Request) -> Session | None:
        """The session of this request, if it has one that is valid."""
        cookie = request.cookies.get(COOKIE)
        if not cookie:
            return None
        async with self._service.pool.connection() as connection:
            return await sign_in.find(connection, self._service.config.console.idle, cookie=cookie)

    async def numbered(self, number: int) -> Session | None:
        """The session with this number, if it is valid."""
        async with self._service.pool.connection() as connection:
            return await sign_in.find(connection, self._service.config.console.idle, number=number)

    def acting(self, session: Session, most: float | None = None) -> AbstractAsyncContextManager[database.Connection]:
        """A connection that acts for the person, whose statements take no longer than allowed, or than `most`."""
        seconds = self._service.config.timeout.query.total_seconds()
        return acting.borrowed(self._service.pool, session.principal, seconds if most is None else min(seconds, most))

    async def sign_in(self, request: Request, name: str, password: str) -> tuple[str, str]:
        """Begin a session by a password: its cookie, and who it is; Problem 401, 429 or 503."""
        try:
            person = prepared(name)
        except NotPrepared:
            person = ""
        limits = self._limits(request, person)
        async with self._service.pool.connection() as connection:
            if wait := await sign_in.count(connection, limits):
                why = "too many wrong passwords; try again later"
                raise Problem(HTTPStatus.TOO_MANY_REQUESTS, why, retry_after=wait)
            known = await sign_in.hash_of(connection, person)
        try:
            right = await self._hashing.check(known or unknown_hash(OURS), password)
        except HashingBusy:
            await self._give_back(limits)
            raise unavailable("too many people sign in at this moment; try again") from None
        except NotPrepared:
            right = False
        cookie = await self._begin(request, person, known) if right and known is not None else None
        if cookie is None:
            events.emit("console.refused", client=self._service.address(request), name=person)
            raise Problem(HTTPStatus.UNAUTHORIZED, _WRONG)
        await self._give_back(limits)
        return cookie, person

    def provider(self, request: Request) -> Provider | None:
        """The provider at which people may sign in, where one is named."""
        tokens = self._service.keys.tokens
        client = None if tokens is None else tokens.settings.client
        if tokens is None or client is None:
            return None
        return Provider(tokens, client, f"{client.url or str(request.base_url).rstrip('/')}{_BACK}")

    async def sign_in_named(self, request: Request, secret: str, answer: dict[str, str]) -> tuple[str, str]:
        """Begin a session by the provider's answer: its cookie, and the page to go on to; Problem."""
        provider = self.provider(request)
        if provider is None:
            raise Problem(HTTPStatus.NOT_FOUND, _NO_PROVIDER)
        limits = self._limits(request, None)
        async with self._service.pool.connection() as connection:
            if wait := await sign_in.count(connection, limits):
                why = "too many sign-ins that failed; try again later"
                raise Problem(HTTPStatus.TOO_MANY_REQUESTS, why, retry_after=wait)
        try:
            named, after = await provider.named(secret, answer)
        except (SignInRefused, TokenRefused) as error:
            events.emit("console.refused", client=self._service.address(request), name="")
            raise Problem(HTTPStatus.UNAUTHORIZED, str(error)) from None
        except ProviderAway:
            await self._give_back(limits)
            raise unavailable("the provider does not answer; sign in by your password, or try again") from None
        address, agent = self._service.address(request), request.headers.get("user-agent", "")
        async with self._service.pool.connection() as connection:
            span = self._service.config.console.session
            begun = await sign_in.begin_named(connection, named.principal, span, address, agent)
        if begun is None:
            events.emit("console.refused", client=address, name=named.principal)
            why = f"{show(named.principal)}, whom the provider names, is not a person here; ask an administrator"
            raise Problem(HTTPStatus.UNAUTHORIZED, why)
        events.emit("console.signed_in", client=address, principal=named.principal)
        await self._give_back(limits)
        return begun.cookie, after

    async def use_link(self, request: Request, token: str, password: str) -> str:
        """Choose a password by a link, and begin a session: its cookie."""
        try:
            hashed = await asyncio.to_thread(make_hash, password)
        except NotPrepared as error:
            raise Refused(f"this password cannot be used: {error}") from None
        async with self._service.pool.connection() as connection:
            person = await sign_in.use_link(connection, token, hashed)
        cookie = await self._begin(request, person, hashed)
        if cookie is None:
            raise Problem(HTTPStatus.UNAUTHORIZED, "the password was changed meanwhile; sign in")
        return cookie

    async def _begin(self, request: Request, person: str, hashed: str) -> str | None:
        span, address = self._service.config.console.session, self._service.address(request)
        agent = request.headers.get("user-agent", "")
        async with self._service.pool.connection() as connection:
            begun = await sign_in.begin(connection, person, hashed, span, address, agent)
        if begun is not None:
            events.emit("console.signed_in", client=address, principal=person)
        return None if begun is None else begun.cookie

    def _limits(self, request: Request, person: str | None) -> list[Limit]:
        """What a sign-in counts against. person: the name that was typed; None: none was."""
        most, window = self._service.config.console.failures, self._service.config.rates.window
        if not most:
            return []
        address = places.host(self._service.address(request))
        of_name = [] if person is None else [Limit(f"name/{person}", most * _OF_A_NAME, window)]
        return [Limit(f"address/{address}", most, window), *of_name]

    async def _give_back(self, limits: list[Limit]) -> None:
        async with self._service.pool.connection() as connection:
            await sign_in.give_back(connection, limits)


def may(session: Session, scope: str) -> bool:
    """Whether the person's roles allow it."""
    return not session.roles.isdisjoint(ROLES[scope])


def set_cookie(request: Request, response: Response, cookie: str) -> None:
    """Let the browser show this from now on, until it is closed."""
    response.set_cookie(COOKIE, cookie, path=_PATH, secure=_secure(request), httponly=True, samesite="lax")


def set_asking(request: Request, response: Response, secret: str) -> None:
    """Let the browser remember a sign-in that goes on at the provider, for some minutes."""
    secure = _secure(request)
    response.set_cookie(ASKING, secret, _ASKED, path=_BACK, secure=secure, httponly=True, samesite="lax")


def delete_asking(response: Response) -> None:
    """Let the browser forget it: its answer counts once."""
    response.delete_cookie(ASKING, path=_BACK)


def delete_cookie(response: Response) -> None:
    """Let the browser forget it."""
    response.delete_cookie(COOKIE, path=_PATH)


def _secure(request: Request) -> bool:
    """Whether a cookie goes over TLS only: everywhere but on this host itself."""
    host = request.headers.get("host", "")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return request.url.scheme == "https" or name.lower() not in _LOCAL
