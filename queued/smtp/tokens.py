"""tokens — access tokens for logins: from a file, a variable, a program, or an OAuth 2.0 server

Guarantees: a token is fetched once, however many connections wait for it, and kept until it is about to expire; one
    that a host refused is fetched again. A program or a server has 30 seconds, and no more of its output is read than a
    token can have. No error contains a token, a secret that the server says back, or the output of a program.
Raises: NoTokenError; `lasting` says that a retry is useless until the operator has corrected something.
See: RFC 6749 sections 4.4, 5 and 6; RFC 6750 section 2.1 (the characters of a token).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from queued.smtp.own_secrets import OwnSecrets
from shared import secret_files
from shared.errors import ConfigError, cause
from shared.http import HttpClient, HttpFailed
from shared.secret_files import UnusableSecret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shared.config.queued.login import Auth, OAuth, Token

_PATIENCE: Final = 30.0  # seconds for a program or a server
_LONGEST: Final = 65536  # octets of a server's answer
_UNSAID: Final = 300.0  # seconds that a token is used whose server does not say how long it lives
_FOR_EVER: Final = 1e9  # seconds: a server that says more, or a number beyond any float, says nothing
_EARLY: Final = 60.0  # seconds before its end at which a token is replaced
_BEARER: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750 section 2.1
_ERROR: Final = re.compile(r"[!#-\[\]-~]{1,60}")  # RFC 6749 section 5.2, without the blank
_AGAIN: Final = 1.0  # seconds after a failure until we ask once more
_FRESH: Final = 10.0  # seconds for which a token cannot be outdated
_SERVERS_FAULT: Final = 500
_HEADERS: Final = (
    ("Accept", "application/json"),
    ("Content-Type", "application/x-www-form-urlencoded"),
    ("User-Agent", "Pillarbox"),
)


class NoTokenError(Exception):
    """There is no token; the text says why. lasting: until the operator corrects it."""

    def __init__(self, text: str, *, lasting: bool) -> None:
        super().__init__(text)
        self.lasting = lasting


def source(auth: Auth) -> Tokens:
    """The source of this login's tokens; UnusableSecret or ConfigError for errors that are visible now."""
    if auth.oauth is not None:
        refreshed = _Refreshed(auth.oauth)
        return Tokens(refreshed.ask, refreshed.secrets)
    assert auth.token is not None  # noqa: S101 - as shared.config.queued.login has it
    if auth.token.command is not None:
        return Tokens(_printed(auth.token))
    secret_files.read(auth.token)
    return Tokens(_read(auth.token))


class Tokens:
    """The token in use."""

    def __init__(self, ask: Callable[[], Awaitable[tuple[str, float]]], fixed: tuple[str | None, ...] = ()) -> None:
        """`ask`: for a token, and how many seconds it is to be used. fixed: the secrets it is asked for by."""
        self._ask = ask
        self._fixed = fixed
        self._asking = asyncio.Lock()
        self._token = ""
        self._until = 0.0
        self._asked, self._since = "", 0.0  # the last one that was had, and when we asked last
        self._failure: NoTokenError | None = None

    async def get(self) -> str:
        """A token that is good as far as we know."""
        async with self._asking:
            if not self._token or monotonic() >= self._until:
                self._token = ""
                if self._failure is not None and monotonic() - self._since < _AGAIN:
                    raise self._failure  # a caller that has waited for it need not wait as long once more
                try:
                    await self._renew()
                except NoTokenError as error:
                    self._failure, self._since = error, monotonic()
                    raise
            return self._token

    async def _renew(self) -> None:
        token, seconds = await self._ask()
        if not _BEARER.fullmatch(token):
            raise NoTokenError("the token has characters that are not allowed (RFC 6750)", lasting=True)
        self._failure, self._since = None, monotonic()
        self._token, self._asked, self._until = token, token, self._since + seconds

    def same_as(self, other: Tokens) -> bool:
        """Whether both ask by the same secrets."""
        return self._fixed == other._fixed

    def refused(self, token: str) -> bool:
        """A host does not take it: ask for another one next time. Whether that one may be better, this being old."""
        if token == self._token:
            self._token = ""
        return token != self._asked or monotonic() - self._since > _FRESH


def _read(place: Token) -> Callable[[], Awaitable[tuple[str, float]]]:
    async def ask() -> tuple[str, float]:
        try:
            return secret_files.read(place), 0.0
        except UnusableSecret as error:
            raise NoTokenError(str(error), lasting=True) from None

    return ask


def _printed(place: Token) -> Callable[[], Awaitable[tuple[str, float]]]:
    command = place.command or []

    async def ask() -> tuple[str, float]:
        return await _run(command), place.lifetime.total_seconds()

    return ask


async def _run(command: list[str]) -> str:
    """The output of the program."""
    program = command[0]
    # Not a pipe, which processes left by the program would hold open; and in memory, where no token stays.
    with os.fdopen(os.memfd_create("token"), "r+b") as printed:
        try:
            running = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=printed, stderr=asyncio.subprocess.DEVNULL
            )
        except (OSError, ValueError) as error:
            raise NoTokenError(f"{program} does not start: {cause(error)}", lasting=True) from None
        try:
            async with asyncio.timeout(_PATIENCE):
                status = await running.wait()
        except TimeoutError:
            raise NoTokenError(f"{program} has printed no token within {_PATIENCE:g} s", lasting=False) from None
        finally:
            if running.returncode is None:
                with suppress(ProcessLookupError):
                    running.kill()
                await asyncio.shield(running.wait())
        if status != 0:
            raise NoTokenError(f"{program} ended with status {status}", lasting=False)
        printed.seek(0)
        octets = printed.read(secret_files.LONGEST + 1)
    try:
        return secret_files.one_line(octets, f"the output of {program}")
    except UnusableSecret as error:
        raise NoTokenError(str(error), lasting=True) from None


class _Refreshed:
    """Tokens from an OAuth 2.0 server."""

    def __init__(self, settings: OAuth) -> None:
        self._settings = settings
        self._secret = secret_files.read(settings.clientsecret) if settings.clientsecret else None
        self._refresh = secret_files.read(settings.refresh) if settings.refresh else None
        self.secrets = self._secret, self._refresh
        self._said = OwnSecrets()  # to this server and by it
        for secret in filter(None, self.secrets):
            self._said.hold(secret, secret)
        try:
            context = ssl.create_default_context(cafile=settings.ca)
        except (OSError, ValueError) as error:
            raise ConfigError(f"oauth.ca: {settings.ca}: {cause(error)}") from None
        self._http = HttpClient(_LONGEST, context)

    async def ask(self) -> tuple[str, float]:
        """A fresh token and how long it is to be used."""
        settings = self._settings
        form = {"client_id": settings.clientid}
        if self._refresh is None:
            form["grant_type"] = "client_credentials"
        else:
            form |= {"grant_type": "refresh_token", "refresh_token": self._refresh}
        if self._secret is not None:
            form["client_secret"] = self._secret
        if settings.scope is not None:
            form["scope"] = settings.scope
        said = await self._post(form)
        token, lifetime, refresh = said.get("access_token"), said.get("expires_in"), said.get("refresh_token")
        if not isinstance(token, str):
            raise NoTokenError(f"{settings.url} returned no access_token", lasting=False)
        self._said.hold("access", token)
        if self._refresh is not None and isinstance(refresh, str) and refresh:
            self._refresh = refresh  # RFC 6749 section 6: the one before may count no more
            self._said.hold("refresh", refresh)
        seconds = _UNSAID + _EARLY
        if isinstance(lifetime, int | float) and 0 < lifetime < _FOR_EVER:
            seconds = float(lifetime)
        return token, max(seconds - _EARLY, seconds / 2)

    async def _post(self, form: dict[str, str]) -> dict[str, Any]:
        url = self._settings.url
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await self._http.ask("POST", url, _HEADERS, urlencode(form).encode())
        except TimeoutError:
            raise NoTokenError(f"{url} returned no token within {_PATIENCE:g} s", lasting=False) from None
        except HttpFailed as error:
            raise NoTokenError(f"{url}: {error}", lasting=False) from None
        try:
            return _answer(url, answer.status, answer.body)
        except NoTokenError as error:
            raise NoTokenError(self._said.clean(str(error)), lasting=error.lasting) from None


def _answer(url: str, status: int, octets: bytes) -> dict[str, Any]:
    """The server's answer, if it is one (RFC 6749 sections 5.1 and 5.2)."""
    try:
        said = json.loads(octets)
    except (ValueError, RecursionError):
        said = None
    if status == 200 and isinstance(said, dict):  # noqa: PLR2004 - RFC 6749 section 5.1
        return said
    error = said.get("error") if isinstance(said, dict) else None
    why = f" {error}" if isinstance(error, str) and _ERROR.fullmatch(error) else ""
    raise NoTokenError(f"{url} answers {status}{why}", lasting=bool(why) and status < _SERVERS_FAULT)
