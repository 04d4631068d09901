"""metrics_server — answers GET over HTTP/1.1, one small page per connection

Owns: a listening socket and its few connections; parsing a request's head and refusing a malformed one.
Guarantees: bounded for every client: 16 connections, as many more that get 503, any further closed at once; 8 KiB of
    head, 10 seconds for all of it, no body kept, one request per connection. A client's errors are answered with
    their status and never logged. A page that raises is 500 to the client, and metrics.failed in the log.
Raises: ListenFailed when the address cannot be bound.
See: RFC 9112 (HTTP/1.1) and RFC 9110 (semantics), sections as cited.
Bugs: without TLS and without a password; meant for loopback or a private network.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from shared import port_holder
from shared.config.fields import HIGHEST_PORT
from shared.errors import ListenFailed
from shared.observe import events

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from shared.config.metrics import ListenAddress

_CONNECTIONS: Final = 16
_HEAD: Final = 8192  # octets
_PATIENCE: Final = 10.0  # seconds for a request and its answer, together
_LINGER: Final = 65536  # octets of what a client still sends that are read and forgotten

# RFC 9112 section 3: method SP request-target SP HTTP-version.
_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
# RFC 9112 section 5: no space before the colon (5.1), no line folded (5.2), no control characters.
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t\x20-\x7e\x80-\xff]*")
_ABSOLUTE = re.compile(r"https?://[^/?]*", re.IGNORECASE)


class Page(NamedTuple):
    """The answer to a path."""

    content: bytes
    status: HTTPStatus = HTTPStatus.OK
    type: str = "text/plain; charset=utf-8"


class MetricsServer:
    """The socket and its pages, by path."""

    def __init__(self, pages: Mapping[str, Callable[[], Awaitable[Page]]]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self, address: ListenAddress, key: str) -> str:
        """Bind and answer; `host:port` as bound. `key` is the configuration key of the address, for errors."""
        if address.port > HIGHEST_PORT:  # of which uvloop would take the lower sixteen bits
            raise ListenFailed(f"{key}: {address}: cannot listen: ports end at {HIGHEST_PORT}")
        try:
            self._server = await asyncio.start_server(self._accept, address.host, address.port, limit=_HEAD)
        except OSError as error:
            said = port_holder.why(error, address.host, address.port)
            raise ListenFailed(f"{key}: {address}: cannot listen: {said}") from None
        return str(type(address)(*self._server.sockets[0].getsockname()[:2]))

    async def close(self) -> None:
        """Stop answering; open connections are closed."""
        if self._server is not None:
            self._server.close()
        for each in self._serving:
            each.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._serving) >= 2 * _CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request and its answer, within the time for both."""
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    answer = await self._answer(reader)
                    if writer.is_closing():  # uvloop raises RuntimeError on a write to a closed transport
                        return
                    writer.write(answer)
                    writer.write_eof()
                    await writer.drain()
                    # Closing with octets unread would reset the connection and take the answer with it (RFC 9112
                    # section 9.6).
                    left = _LINGER
                    while left > 0 and (more := await reader.read(left)):
                        left -= len(more)
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        if len(self._serving) > _CONNECTIONS:
            return response(_refusal(HTTPStatus.SERVICE_UNAVAILABLE))
        try:
            async with asyncio.timeout(_PATIENCE / 2):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return response(_refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        except TimeoutError:
            return response(_refusal(HTTPStatus.REQUEST_TIMEOUT))
        path = asked(head)
        # RFC 9110 section 9.3.2: an answer to HEAD has no content.
        bare = head.removeprefix(b"\r\n").startswith(b"HEAD ")
        return response(await self._page(path) if isinstance(path, str) else _refusal(path), bare=bare)

    async def _page(self, path: str) -> Page:
        page = self._pages.get(path)
        if page is None:
            return _refusal(HTTPStatus.NOT_FOUND, f"; allowed: {', '.join(self._pages)}")
        try:
            return await page()
        except Exception as error:  # noqa: BLE001 - a fault here must not stop a daemon that delivers mail
            events.emit("metrics.failed", page=path, error=repr(error))
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)


def asked(head: bytes) -> str | HTTPStatus:
    """The path that a request's head asks for, without its query, or the status of what is wrong with it."""
    # RFC 9112 section 2.2: an empty line before the request is passed over.
    first, *fields = head.removeprefix(b"\r\n").removesuffix(b"\r\n\r\n").split(b"\r\n")
    request = _REQUEST.fullmatch(first)
    if request is None:
        return HTTPStatus.BAD_REQUEST
    if request[3] != b"1":
        return HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
    names = []
    for field in fields:
        match = _FIELD.fullmatch(field)
        if match is None:
            return HTTPStatus.BAD_REQUEST
        names.append(match[1].lower())
    # RFC 9112 section 3.2: one Host, which only HTTP/1.0 may leave out.
    if names.count(b"host") > 1 or (request[4] != b"0" and b"host" not in names):
        return HTTPStatus.BAD_REQUEST
    if request[1] != b"GET":
        return HTTPStatus.METHOD_NOT_ALLOWED
    # RFC 9112 section 3.2.2: the absolute form is understood too.
    return _ABSOLUTE.sub("", request[2].decode("ascii"), count=1).partition("?")[0] or "/"


def response(page: Page, *, bare: bool = False) -> bytes:
    """The octets of an answer, after which the connection closes; `bare` leaves the content out."""
    lines = [
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Date: {formatdate(usegmt=True)}",  # RFC 9110 section 6.6.1
        f"Content-Type: {page.type}",
        f"Content-Length: {len(page.content)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if page.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET")  # RFC 9110 section 15.5.6
    head = "\r\n".join([*lines, "", ""]).encode("ascii")
    return head if bare else head + page.content


def _refusal(status: HTTPStatus, more: str = "") -> Page:
    return Page(f"{status.phrase}{more}\n".encode("ascii"), status)
