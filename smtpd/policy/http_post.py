"""http_post — POST to one HTTP server over connections that are kept

Owns: the only door to h11; connections to the server of the content check, how many there are, and their time limit.
Guarantees: at most `most` requests at once, the others wait; the time limit covers waiting, connecting and the whole
    answer. An answer is bounded. A kept connection that the server had closed meanwhile is replaced once, without a
    word.
Raises: HttpFailed for anything that is not an answer in time; TimeoutError is one of them.
See: RFC 9112 (HTTP/1.1), section 9.3 for kept connections.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import h11

if TYPE_CHECKING:
    from collections.abc import Sequence

type HttpHeaders = Sequence[tuple[str, str]]

_BLOCK: Final = 65536  # octets written before looking whether the server keeps up
_LONGEST_ANSWER: Final = 4 * 2**20  # octets; rspamd's answers are a few thousand
_FAULTS: Final = (OSError, h11.RemoteProtocolError, EOFError)


class HttpFailed(Exception):
    """There is no usable answer."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What the server said."""

    status: int
    body: bytes


class _Stale(Exception):
    """A kept connection was closed before it answered anything."""


class HttpPoster:
    """Posts to one server."""

    def __init__(self, url: str, path: str, *, most: int, seconds: float) -> None:
        """`url` as http://HOST:PORT[/PREFIX]; `path` goes behind it."""
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._authority = parts.netloc
        self._target = parts.path.rstrip("/") + path
        self._seconds = seconds
        self._free = asyncio.Semaphore(most)
        self._kept: list[_Connection] = []

    async def post(self, headers: HttpHeaders, body: bytes) -> HttpAnswer:
        """Post and wait for the answer; raises HttpFailed. Values of `headers` are one line each."""
        # rspamd's own HTTP, and what may stand before it, keeps a connection only for who asks (3.4 for nobody).
        fields = [("Host", self._authority), ("Connection", "keep-alive"), ("Content-Length", str(len(body))), *headers]
        request = h11.Request(
            method="POST",
            target=self._target,
            headers=[(name.encode(), value.encode()) for name, value in fields],
        )
        try:
            async with asyncio.timeout(self._seconds), self._free:
                return await self._exchange(request, body)
        except TimeoutError:
            raise HttpFailed(f"no answer within {self._seconds:g} s") from None
        except _FAULTS as error:
            raise HttpFailed(f"{type(error).__name__}: {error}") from None

    def close(self) -> None:
        """Close what is kept; requests under way go on."""
        while self._kept:
            self._kept.pop().close()

    async def _exchange(self, request: h11.Request, body: bytes) -> HttpAnswer:
        while True:
            kept = self._kept.pop() if self._kept else None
            connection = kept or _Connection(*await asyncio.open_connection(self._host, self._port))
            whole = False
            try:
                answer = await connection.exchange(request, body)
                whole = True
            except _Stale as stale:
                if kept is None:
                    raise EOFError("closed without an answer") from stale
                continue
            finally:
                if whole and connection.reusable():
                    self._kept.append(connection)
                else:
                    connection.close()
            return answer


class _Connection:
    """One connection and the state of HTTP on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT)
        self._heard = False

    async def exchange(self, request: h11.Request, body: bytes) -> HttpAnswer:
        """One request and its answer; raises _Stale when not an octet came back."""
        self._heard = False
        if self._writer.is_closing():  # uvloop has a RuntimeError for who writes to what is closed
            raise _Stale
        try:
            await self._send(request, body)
            return await self._receive()
        except (ConnectionError, EOFError, h11.RemoteProtocolError) as error:
            if self._heard:
                raise
            raise _Stale from error

    def reusable(self) -> bool:
        """Make ready for the next request, if both sides keep the connection."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    def close(self) -> None:
        """Close at once; nothing that waits to be sent is of use."""
        self._writer.transport.abort()

    async def _send(self, request: h11.Request, body: bytes) -> None:
        self._writer.write(self._http.send(request) or b"")
        view = memoryview(body)
        for start in range(0, len(view), _BLOCK):
            block = bytes(view[start : start + _BLOCK])
            self._writer.write(self._http.send(h11.Data(data=block)) or b"")
            await self._writer.drain()
        self._writer.write(self._http.send(h11.EndOfMessage()) or b"")
        await self._writer.drain()

    async def _receive(self) -> HttpAnswer:
        status, body = 0, bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                received = await self._reader.read(_BLOCK)
                self._heard = self._heard or bool(received)
                if not received and not self._heard:
                    raise EOFError("closed")
                self._http.receive_data(received)
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _LONGEST_ANSWER:
                    raise h11.RemoteProtocolError("the answer is too long")
            elif isinstance(event, h11.EndOfMessage):
                return HttpAnswer(status, bytes(body))
            elif isinstance(event, h11.ConnectionClosed):
                raise EOFError("closed in the middle of its answer")
