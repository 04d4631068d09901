"""post — sends a signed request to an endpoint's checked address

Owns: one request, its limits, and which addresses it may go to.
Guarantees: the address that was checked is the one that is connected to, so a name that means another address a moment
    later leads nowhere else. No redirect is followed, no proxy is used. At most `limit` seconds and _LONGEST octets of
    answer. Neither secret nor signature is logged.
Raises: nothing: whatever goes wrong is an Answer.
See: queued/routing/route.py, may_connect; RFC 9110 section 15.4 (redirects).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import cached_property
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from queued.routing.route import may_connect
from queued.webhooks import answer, signature
from queued.webhooks.answer import Answer
from shared.errors import cause
from shared.http import HttpClient, HttpFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from urllib.parse import SplitResult

_LONGEST: Final = 65_536  # octets of an answer, of which only the status is used
_KNOWN: Final = 30.0  # seconds for which the addresses of a name are used again
_TRIES: Final = 3  # addresses
_HTTPS: Final = 443
_HTTP: Final = 80


class Post:
    """The way to one URL; connections are kept."""

    def __init__(self, url: str, *, private: bool, limit: float, context: ssl.SSLContext | None = None) -> None:
        """`limit`: seconds for a request, everything included. context: which servers are trusted; None: the usual."""
        self._url, self._private, self._limit = url, private, limit
        secure = url.startswith("https:")
        self._client = HttpClient(_LONGEST, (context or ssl.create_default_context()) if secure else None, keep=True)
        self._addresses: list[str] = []
        self._asked = 0.0

    async def send(self, name: str, body: bytes, keys: Sequence[bytes], clock: Callable[[], datetime]) -> Answer:
        """What the endpoint answers to this body, under this name."""
        now = clock()
        try:
            fields = [
                ("Host", self._parts.netloc.rpartition("@")[2]),
                ("Content-Type", "application/json"),
                ("User-Agent", "pillarbox"),
                *signature.headers(keys, name, int(now.timestamp()), body),
            ]
            async with asyncio.timeout(self._limit):
                said = await self._ask(fields, body)
        except TimeoutError:
            return Answer(f"did not answer within {self._limit:g} s")
        except (HttpFailed, ValueError) as error:
            self._addresses = []
            return Answer(str(error))
        return said(now)

    async def close(self) -> None:
        """Close the kept connections."""
        await self._client.close()

    @cached_property
    def _parts(self) -> SplitResult:
        """The URL's parts; ValueError if its host is not valid, which only a row written by hand can have."""
        return urlsplit(self._url)

    @cached_property
    def _port(self) -> int:
        return self._parts.port or (_HTTPS if self._parts.scheme == "https" else _HTTP)

    async def _ask(self, fields: list[tuple[str, str]], body: bytes) -> Callable[[datetime], Answer]:
        parts, failure = self._parts, HttpFailed("has no address")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        for address in (await self._find())[:_TRIES]:
            url = f"{parts.scheme}://{address}:{self._port}{path}"
            try:
                got = await self._client.ask("POST", url, fields, body, name=parts.hostname)
            except HttpFailed as error:
                failure = error
            else:
                return lambda now: answer.read(got.status, got.retry_after, now)
        raise failure

    async def _find(self) -> list[str]:
        """The addresses that may be connected to, as URLs have them."""
        if self._addresses and monotonic() - self._asked < _KNOWN:
            return self._addresses
        host = self._parts.hostname or ""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, self._port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise HttpFailed(f"{host}: {cause(error)}") from None
        addresses = list(dict.fromkeys(ip_address(str(each[4][0]).partition("%")[0]) for each in found))
        allowed = [each for each in addresses if may_connect(each, private=self._private)]
        if addresses and not allowed:
            raise HttpFailed(f"{addresses[0]} is not an address of the public Internet; `private` allows others")
        self._addresses = [f"[{each}]" if each.version == 6 else str(each) for each in allowed]  # noqa: PLR2004 - IPv6
        self._asked = monotonic()
        return self._addresses
