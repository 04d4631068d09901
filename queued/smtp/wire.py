"""wire — one TCP connection that is written commands and read replies, each with a time limit

Owns: the asyncio protocol under queued/smtp/client.py: bytes out with back-pressure, replies in.
Called by: queued/smtp/client.py only, one coroutine at a time.
Guarantees: every wait ends by its limit; a peer that sends more replies than it was sent commands is cut
off after the first surplus one, so memory stays bounded; after `abort` or the end of the connection
nothing is written any more.
Raises: ConversationError with the Fault, from `connect`, `reply` and `drain`; nothing else.
See: RFC 5321 §4.5.3.2 (time limits), §3.8 (a connection closed early).
"""

from __future__ import annotations

import asyncio
from collections import deque
from ssl import SSLError
from typing import TYPE_CHECKING, Final, cast

from queued import progress
from queued.smtp.transaction import ConversationError, Fault
from shared import tracing
from shared.errors import cause
from shared.smtp_reply import ReplyParser

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext, SSLObject

    from queued.smtp.transaction import FaultKind, Phase
    from shared.smtp_reply import Reply

_READ: Final = 4096  # octets read at once; several pipelined replies
_SURPLUS: Final = 1  # replies nobody asked for: the one honest case is a 421 before the peer hangs up


async def connect(host: str, port: int, *, limit: float, source: str | None = None) -> Wire:
    """A connection to host:port within `limit` seconds, from the local address `source` where one is given."""
    progress.reached("connect")
    loop = asyncio.get_running_loop()
    local = None if source is None else (source, 0)
    try:
        async with asyncio.timeout(limit):
            _, wire = await loop.create_connection(Wire, host, port, local_addr=local)
    except TimeoutError as error:
        text = f"connect to {host}:{port}: no answer within {limit:g} s"
        raise ConversationError(Fault("timeout", "connect", text)) from error
    except (OSError, ValueError, OverflowError) as error:
        # ValueError and OverflowError are names and ports no resolver takes; the route is wrong, not we.
        way = f"{host}:{port}" if source is None else f"{host}:{port} from {source}"
        text = f"connect to {way}: {cause(error)}"
        raise ConversationError(Fault("connect", "connect", text)) from error
    return wire


class Wire(asyncio.BufferedProtocol):
    """The connection; made by `connect`."""

    def __init__(self) -> None:
        """A connection not made yet."""
        self._loop = asyncio.get_running_loop()
        # asyncio.Protocol would get a fresh 256 KiB for every reply of fifty octets: measured, 10 µs each.
        self._octets = memoryview(bytearray(_READ))
        self._parser = ReplyParser()
        self._replies: deque[Reply] = deque()
        self._owed = 1  # replies we still have a right to; the greeting is the first
        self._end: tuple[FaultKind, str] | None = None
        self._paused = False
        self._expired = False
        self._waiter: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None

    @property
    def is_open(self) -> bool:
        """Whether the connection still stands, as far as we have heard."""
        return self._end is None

    @property
    def has_reply(self) -> bool:
        """Whether a reply lies ready."""
        return bool(self._replies)

    def write(self, octets: bytes, *, replies: int = 0) -> None:
        """Send octets that the peer owes this many replies to."""
        self._owed += replies
        if self._end is None and self._transport is not None:
            self._transport.write(octets)

    async def start_tls(self, context: SSLContext, server: str, phase: Phase, limit: float) -> SSLObject:
        """The handshake with a host that is called `server`, within `limit` seconds; the finished session.

        What came before it must have been read (RFC 3207 §5). Afterwards the peer owes what it owed before it.
        """
        if self._replies or self._parser.pending:
            raise ConversationError(Fault("protocol", phase, "octets that were not asked for before the TLS handshake"))
        self.check(phase)
        assert self._transport is not None  # noqa: S101 - `check` has seen that it stands
        try:
            # Up to its first wait start_tls has taken the connection over: no octet slips in between.
            secured = await self._loop.start_tls(
                self._transport, self, context, server_hostname=server, ssl_handshake_timeout=limit
            )
        except SSLError as error:
            reason = getattr(error, "verify_message", None) or error.reason or "handshake refused"
            raise self._tls_failed(phase, reason) from error
        except (OSError, ValueError) as error:  # a time limit of asyncio's is an OSError
            raise self._tls_failed(phase, cause(error)) from error
        session = None if secured is None else secured.get_extra_info("ssl_object")
        if session is None:  # the connection ended in the middle of the handshake
            raise self._tls_failed(phase, "peer hung up")
        self._transport = secured
        return cast("SSLObject", session)

    def _tls_failed(self, phase: Phase, reason: str) -> ConversationError:
        self._finish("tls", f"TLS failed: {reason}")
        if not self._closed.done():
            self._closed.set_result(None)
        return ConversationError(Fault("tls", phase, f"TLS failed: {reason}"))

    async def reply(self, phase: Phase, limit: float) -> Reply:
        """The next reply, within `limit` seconds from now."""
        progress.reached(phase)
        if not self._replies:
            await self._wait(self._replies.__len__, phase, limit)
        reply = self._replies.popleft()
        if tracing.on():
            tracing.event(f"smtp.{phase}", {"smtp.reply": str(reply)})
        return reply

    async def drain(self, phase: Phase, limit: float) -> None:
        """Until the peer has taken most of what was written, or has something to say about it."""
        progress.reached(phase)
        if self._paused:
            await self._wait(lambda: not self._paused or self._replies, phase, limit)
        else:
            await asyncio.sleep(0)  # others get their turn between the pieces of a large message
        self.check(phase)

    def check(self, phase: Phase) -> None:
        """Raise the Fault when the connection has ended and no reply explains it."""
        if self._end is not None and not self._replies:
            kind, text = self._end
            raise ConversationError(Fault(kind, phase, text))

    def abort(self) -> None:
        """Cut the connection now; anything unsent is lost."""
        self._finish("closed", "connection abandoned")
        if self._transport is not None:
            self._transport.abort()

    async def close(self, farewell: bytes, limit: float) -> None:
        """Send a farewell, then close; cut the connection when that takes longer than `limit` seconds."""
        if self._end is None and self._transport is not None:
            self._transport.write(farewell)
            self._finish("closed", "connection closed by us")
            self._transport.close()
        try:
            async with asyncio.timeout(limit):
                await asyncio.shield(self._closed)
        except TimeoutError:
            pass
        finally:
            self.abort()

    async def _wait(self, ready: Callable[[], object], phase: Phase, limit: float) -> None:
        timer = self._loop.call_later(limit, self._expire)
        try:
            while not ready():
                self.check(phase)
                if self._expired:
                    text = f"no progress within {limit:g} s" if phase == "body" else f"no reply within {limit:g} s"
                    raise ConversationError(Fault("timeout", phase, text))
                self._waiter = self._loop.create_future()
                await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
            self._expired = False

    def _expire(self) -> None:
        self._expired = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _finish(self, kind: FaultKind, text: str) -> None:
        """Remember why the connection ended; the first reason is the true one."""
        if self._end is None:
            self._end = (kind, text)
        self._wake()

    # What follows is called by the event loop (asyncio.BufferedProtocol).

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # what create_connection promises

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop puts what came in."""
        del sizehint
        return self._octets

    def buffer_updated(self, nbytes: int) -> None:
        """Read replies out of what came in."""
        if self._end is not None:
            return
        for reply in self._parser.feed(bytes(self._octets[:nbytes])):
            self._owed -= 1
            if self._owed < -_SURPLUS:
                self._finish("protocol", "more replies than commands")
                self.abort()
                return
            self._replies.append(reply)
        if self._parser.broken is not None:
            self._finish("protocol", self._parser.broken)
            self.abort()
        self._wake()

    def eof_received(self) -> None:
        """The peer hung up: known now, even when octets of ours still wait to leave."""
        self._finish("closed", "peer hung up")

    def pause_writing(self) -> None:
        """Hold `drain` back."""
        self._paused = True

    def resume_writing(self) -> None:
        """Let `drain` go on."""
        self._paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever waits learns that there is nothing more to wait for."""
        kind: FaultKind = "tls" if isinstance(exc, SSLError) else "closed"
        self._finish(kind, f"connection lost: {cause(exc)}" if exc else "peer hung up")
        if not self._closed.done():
            self._closed.set_result(None)
