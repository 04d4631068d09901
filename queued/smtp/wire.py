"""wire — one TCP connection for commands and replies, each with a time limit

Owns: the asyncio protocol under queued/smtp/client.py: bytes out with back-pressure, replies in.
Guarantees: every wait ends by its limit. A peer that sends a reply when none is due, or begins one, is cut off
(`surplus`), unless it is a 421: from then on it is unknown which reply answers what. Memory is bounded: no more is
read while _MOST_HELD octets of replies are unread, or _ALL_HELD on all connections, and a peer that sends more octets
than the due replies may have is cut off; under TLS, octets without a reply count too. No reply text leaves
with a secret of a login of ours in it, from the greeting on, but for the replies while we log in, which
queued/smtp/auth.py masks. After `abort` or the end of the connection nothing is written any more.
Raises: only ConversationError with the Fault, from `connect`, `reply` and `drain`.
See: RFC 5321 §4.5.3.2 (time limits), §3.8 (a connection closed early).
"""

from __future__ import annotations

import asyncio
from collections import deque
from ssl import SSLError
from typing import TYPE_CHECKING, Final, cast

from queued.routing.system_names import NAMES
from queued.smtp import conversation
from queued.smtp.own_secrets import OwnSecrets
from queued.smtp.record_limit import limit as limit_records
from queued.smtp.transaction import ConversationError, Fault
from queued.waiting import watchdog
from shared.errors import cause
from shared.mail.smtp_reply import ReplyParser
from shared.masking import MASK
from shared.observe import tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from ssl import SSLContext, SSLObject

    from queued.smtp.record_limit import RecordLimit
    from queued.smtp.transaction import FaultKind
    from queued.waiting.watchdog import Phase
    from shared.mail.smtp_reply import Reply

_READ: Final = 4096  # octets read at once; several pipelined replies
_CLOSING: Final = 421  # RFC 5321 §3.8: the one reply that may come though none is due
_MOST_HELD: Final = 65_536  # octets of unread replies on one connection before no more is read
_ALL_HELD: Final = 16_777_216  # and on all of them; a connection with something to read then reads that first
_MOST_HEARD: Final = 65_536  # octets that may come in one transaction, besides _FOR_EACH for each reply that is due
_FOR_EACH: Final = 1024
_RECORDS: Final = 2  # times as many octets under TLS, for the records and the tickets of a session
_GOODBYE: Final = 1.0  # seconds that the host has to end a TLS session that we have ended (RFC 8446 section 6.1)


async def connect(
    host: str, port: int, *, limit: float, source: str | None = None, secrets: OwnSecrets | None = None
) -> Wire:
    """A connection to host:port within `limit` seconds, from the local address `source` where one is given.

    secrets: what the host may know of earlier sessions, and must not be read in its replies.
    """
    watchdog.reached("connect")
    local = None if source is None else (source, 0)

    def made() -> Wire:
        return Wire(secrets)

    try:
        async with asyncio.timeout(limit):
            if host.startswith("/"):
                _, wire = await asyncio.get_running_loop().create_unix_connection(made, host)
            else:
                addresses = await NAMES.addresses(host)
                wire = await _first(addresses, port, local, made)
    except TimeoutError as error:
        text = f"connect to {host}:{port}: no answer within {limit:g} s"
        raise ConversationError(Fault("timeout", "connect", text)) from error
    except (OSError, ValueError, OverflowError) as error:
        # ValueError and OverflowError are names and ports no resolver takes; the route is wrong, not we.
        way = f"{host}:{port}" if source is None else f"{host}:{port} from {source}"
        text = f"connect to {way}: {cause(error)}"
        raise ConversationError(Fault("connect", "connect", text)) from error
    return wire


async def _first(addresses: Sequence[str], port: int, local: tuple[str, int] | None, made: Callable[[], Wire]) -> Wire:
    """A connection to the first of these addresses, which are at least one, that can be connected to."""
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for address in addresses:
        try:
            _, wire = await loop.create_connection(made, address, port, local_addr=local)
        except OSError as error:
            failure = failure or error
        else:
            return wire
    raise failure or OSError("the name has no address")


class Wire(asyncio.BufferedProtocol):
    """The connection; made by `connect`."""

    def __init__(self, secrets: OwnSecrets | None = None) -> None:
        """A connection not made yet."""
        self._loop = asyncio.get_running_loop()
        # asyncio.Protocol would get a fresh 256 KiB for every reply of fifty octets: measured, 10 µs each.
        self._octets = memoryview(bytearray(_READ))
        self._parser = ReplyParser()
        self._replies: deque[Reply] = deque()
        self._owed = 1  # replies we still have a right to; the greeting is the first
        self._heard = 0  # octets since the transaction began
        self._may_hear = _MOST_HEARD
        self._held = 0  # octets of unread replies
        self._stopped = False  # no more is read until some of those are
        self.secrets = OwnSecrets() if secrets is None else secrets  # and, from when we log in, those of the session
        self.surplus = ""  # the peer's octets, or the fault, when no reply was due
        self.surplus_reply: Reply | None = None  # the same, where it was a whole reply
        self._end: tuple[FaultKind, str] | None = None
        self._paused = False
        self._expired = False
        self._waiter: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._records: RecordLimit | None = None  # under TLS

    @property
    def is_open(self) -> bool:
        """Whether the connection is still open, as far as we know."""
        return self._end is None

    @property
    def has_reply(self) -> bool:
        """Whether a reply is ready."""
        return bool(self._replies)

    @property
    def session(self) -> SSLObject | None:
        """The TLS session, None in clear text."""
        return None if self._transport is None else self._transport.get_extra_info("ssl_object")

    def write(self, octets: bytes, *, replies: int = 0) -> None:
        """Send octets that the peer owes this many replies to."""
        if replies and not self._owed and self._parser.pending:
            self._cut_surplus("unexpected data from the host")
        self._owed += replies
        self._may_hear += replies * _FOR_EACH
        if self._end is None and self._transport is not None:
            self._transport.write(octets)

    def begin(self) -> None:
        """A transaction begins: what came before counts for the one before."""
        self._heard, self._may_hear = 0, _MOST_HEARD
        if self._records is not None:
            self._records.octets = 0

    async def start_tls(self, context: SSLContext, server: str, phase: Phase, limit: float) -> SSLObject:
        """The handshake with a host that is called `server`, within `limit` seconds; the finished session.

        What came before it must have been read (RFC 3207 §5). Afterwards the peer owes what it owed before it.
        """
        if self._replies or self._parser.pending:
            raise ConversationError(Fault("protocol", phase, "unexpected data from the host before the TLS handshake"))
        self.check(phase)
        assert self._transport is not None  # noqa: S101 - `check` has seen that it is open
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
        # What comes from now on is counted where it arrives: of a flood of tickets nothing would reach buffer_updated.
        self._records = limit_records(self._transport, lambda: _RECORDS * self._may_hear, self._cut_long)
        self._transport = secured
        return cast("SSLObject", session)

    def _tls_failed(self, phase: Phase, reason: str) -> ConversationError:
        self._finish("tls", f"TLS failed: {reason}")
        if not self._closed.done():
            self._let_go()
        return ConversationError(Fault("tls", phase, f"TLS failed: {reason}"))

    async def reply(self, phase: Phase, limit: float) -> Reply:
        """The next reply, within `limit` seconds from now."""
        watchdog.reached(phase)
        if not self._replies:
            await self._wait(self._replies.__len__, phase, limit)
        reply = self._replies.popleft()
        self._hold(-_size(reply))
        if phase != "auth":  # a challenge must stay as it is
            reply = self.secrets.reply(reply)
        conversation.heard(reply, code_only=phase == "auth")
        if tracing.on():
            # While we log in a host may say our own words back to us: of that the code is enough.
            said = str(reply.code) if phase == "auth" else str(reply)
            tracing.event(f"smtp.{phase}", {"smtp.reply": said})
        return reply

    async def drain(self, phase: Phase, limit: float) -> None:
        """Until the peer has taken most of what was written, or has something to say about it."""
        watchdog.reached(phase)
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
        """Send a farewell, then close; cut the connection when that takes longer than `limit` seconds.

        Under TLS the host has a moment to end the session too: waiting for it longer would let it hold the connection.
        """
        limit = limit if self.session is None else min(limit, _GOODBYE)
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

    # The event loop calls the methods below (asyncio.BufferedProtocol).

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
        self._heard += nbytes
        for reply in self._parser.feed(bytes(self._octets[:nbytes])):
            if not self._owed and (reply.code != _CLOSING or (self._replies and self._replies[-1].code == _CLOSING)):
                self.surplus_reply = self.secrets.reply(reply)
                self._cut_surplus(f"unexpected reply: {self.surplus_reply}")
                return
            self._owed = max(0, self._owed - 1)
            self._replies.append(reply)
            self._hold(_size(reply))
        if self._parser.broken is not None:
            self._finish("protocol", self._broken(self._parser.broken))
            self.abort()
        elif self._heard > self._may_hear:
            self._cut_long()
        self._wake()

    def _broken(self, text: str) -> str:
        """What is wrong; where we have secrets without the quoted line, in which half of one could not be found."""
        what, quoted, _ = text.partition(": ")
        return f"{what}: {MASK}" if self.secrets and quoted else text

    def _cut_long(self) -> None:
        self._finish("protocol", f"replies of more than {self._may_hear} octets")
        self.abort()

    def _cut_surplus(self, text: str) -> None:
        self.surplus = text
        self._finish("protocol", text)
        self.abort()

    def _hold(self, octets: int) -> None:
        """Count so many more unread octets of replies: read no more from the peer while they are too many."""
        if self._closed.done():
            return
        self._held += octets
        _HELD.octets += octets
        stop = self._held > _MOST_HELD or (self._held > 0 and _HELD.octets > _ALL_HELD)
        if stop is self._stopped or self._transport is None or self._transport.is_closing():
            return
        self._stopped = stop
        if stop:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

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
        """Wake the waiting caller: there is nothing more to wait for."""
        kind: FaultKind = "tls" if isinstance(exc, SSLError) else "closed"
        self._finish(kind, f"connection lost: {cause(exc)}" if exc else "peer hung up")
        if not self._closed.done():
            self._let_go()

    def _let_go(self) -> None:
        """It is over: its unread octets are counted no longer."""
        _HELD.octets -= self._held
        self._held = 0
        self._closed.set_result(None)


class _Held:
    """Octets of unread replies on all connections of the process."""

    octets = 0


_HELD: Final = _Held()


def _size(reply: Reply) -> int:
    return sum(map(len, reply.lines))
