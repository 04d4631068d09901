"""protocol — one connection, with limits that uvicorn leaves to a proxy

Owns: the most connections, the size of a request's head, and the deadlines for a head and for a body.
Guarantees: a client that has shown no key yet costs a bounded amount of memory for a bounded time. What is refused here
    gets a problem (httpd/problems.py) and the end of its connection.
See: RFC 6585 section 5 (431); RFC 9110 section 15.5.9 (408); RFC 9112 section 9.6 (the end of a connection).
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, override

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from httpd import problems
from smtpd import tls

if TYPE_CHECKING:
    from httpd.tally import Tally
    from shared.config.httpd.settings import HttpdLimits, HttpdTimeout


_LINGER: Final = 2.0  # seconds in which what a refused client still sends is thrown away (RFC 9112 section 9.6)


class LimitedProtocol(HttpToolsProtocol):
    """A connection that ends where its client asks too much."""

    def __init__(self, *arguments: Any, limits: HttpdLimits, timeout: HttpdTimeout, tally: Tally, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._tally = tally
        self._limits = limits
        self._seconds = timeout.head.total_seconds(), timeout.body.total_seconds()
        self._deadline: float | None = None
        self._in_head = True
        self._head = 0  # octets of it so far
        self._refused = False
        self.ended = asyncio.Event()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._tally.connected(len(self.connections))
        self.ended.set()

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.time() + self._seconds[0]
        session = transport.get_extra_info("ssl_object")
        self.app_state = {"tls": None if session is None else tls.facts(session)}
        if self._tally.connected(len(self.connections)) > self._limits.connections:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open")

    @override
    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self._in_head and not self._refused:
            self._head += len(data)
            if self._head > self._limits.head:
                self._refuse_head()

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head = True, 0
        self._deadline = self.loop.time() + self._seconds[0]

    @override
    def on_headers_complete(self) -> None:
        self._in_head = False
        self._deadline = self.loop.time() + self._seconds[1]
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self._limits.head:
            self._refuse_head()
            return
        if not self._refused:
            super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._deadline = None
        if not self._refused:
            super().on_message_complete()

    @override
    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, "this is not a request of HTTP/1.1")

    def judge(self, now: float) -> None:
        """Close it if its client has taken too long."""
        if self._deadline is not None and now > self._deadline and not self.transport.is_closing():
            what = "head" if self._in_head else "body"
            answering = self.cycle is not None and self.cycle.response_started
            if (self._in_head and self._head == 0) or answering:
                self.transport.close()  # it has asked nothing, or gets its answer already
            else:
                self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the {what} of the request took too long")

    def _refuse_head(self) -> None:
        most = f"allowed: up to {self._limits.head} octets"
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the head of the request is too large; {most}")

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        if self._refused:
            return
        self._refused = True
        self._deadline = None
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(problems.octets(status, detail))
        if status is HTTPStatus.SERVICE_UNAVAILABLE or not self.transport.can_write_eof():
            self.transport.close()
            return
        # Closed at once, while its client is still sending, the connection would be reset, and the answer lost with it.
        self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(_LINGER, self.transport.close)
