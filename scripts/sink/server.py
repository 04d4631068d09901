"""server — an SMTP server that accepts mail, records it, and fails on request

Owns: Sink, and its sessions: the server side of SMTP, small and strict: commands, replies, content, violations.
Guarantees: shares no code with queued/smtp/client.py, so that each checks the other. Every octet that a careful client
    would not send is noted in `sink.violations`. A record is kept (and in the log file, if there is one) before the
    message is answered; scripts/sink/behaviour.py says what an address asks for. Leaving `async with` closes every
    connection.
Raises: ListenFailed when the address cannot be bound; TimeoutError from `wait_for`.
See: RFC 5321 §4.1.1 and §4.3.2; RFC 2920 (PIPELINING); Postfix smtp-sink(1), for faults scripted per recipient.
Bugs: no TLS, no AUTH, no CHUNKING: for loopback and tests only. The log is written without fsync: it survives the
    sink's own death, not the machine's.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from typing import TYPE_CHECKING, Any, Final, Self, cast

from scripts.sink.behaviour import ACCEPT, Ending, behaviour_of, gravest
from scripts.sink.records import Received, SinkOptions
from scripts.sink.syntax import find_end, is_stray, read_path, refuse_parameters, undo_dots
from shared import port_holder
from shared.errors import ListenFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path
    from types import TracebackType

_LINE_LIMIT: Final = 4096  # RFC 5321 §4.5.3.1.4 asks for 512; extensions lengthen it
_READ: Final = 65536  # octets read at once
_DONE: Final = 250  # RFC 5321 §4.2.2
_CLOSING: Final = 421  # RFC 5321 §3.8
_SYNTAX: Final = "501 5.5.4 syntax error"
_NEEDS_SMTPUTF8: Final = "553 5.6.7 address needs SMTPUTF8"
_RECORDED: Final = "250 2.0.0 OK recorded"


class Session(asyncio.BufferedProtocol):
    """One connection; `sink` gets messages and violations."""

    def __init__(self, sink: Sink) -> None:
        """A session that has not greeted yet."""
        self._sink = sink
        self._octets = memoryview(bytearray(_READ))
        self._buffer = bytearray()
        self._searched = 0
        self._out: list[str] = []
        self._held = False
        self._pipelining = False
        self._in_content = False
        self._transport: asyncio.Transport | None = None
        self._forget()

    def _forget(self) -> None:
        """RSET: no transaction (RFC 5321 §4.1.1.5)."""
        self._sender: str | None = None
        self._smtputf8 = False
        self._recipients: list[str] = []
        self._behaviour = ACCEPT

    # Called by the event loop (asyncio.BufferedProtocol).

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, or refuse to."""
        self._transport = cast("asyncio.Transport", transport)
        crowded = self._sink.joined(self)
        greeting = self._sink.options.greeting
        welcome = f"{greeting} {self._sink.options.hostname} sink"
        self._say("421 4.7.0 too many connections" if crowded else welcome)
        self._flush()
        if crowded or greeting == _CLOSING:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the session."""
        del exc
        self._held = True
        self._transport = None
        self._sink.left(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop puts what came in."""
        del sizehint
        return self._octets

    def buffer_updated(self, nbytes: int) -> None:
        """Take octets in and answer what is complete."""
        self._buffer += self._octets[:nbytes]
        if not self._held:
            self._pump()

    def hang_up(self) -> None:
        """Close after what was said has left."""
        self._held = True
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._held = True
        if self._transport is not None:
            self._transport.abort()

    def _say(self, reply: str) -> None:
        self._out.append(reply)

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            self._out.append("")
            self._transport.write("\r\n".join(self._out).encode())
            self._out = []

    def _pump(self) -> None:
        while not self._held and self._buffer:
            if not (self._content() if self._in_content else self._line()):
                break
        self._flush()

    def _line(self) -> bool:
        """Take one command out of the buffer; False when none is complete."""
        end = self._buffer.find(b"\n")
        if end < 0 or end >= _LINE_LIMIT:
            if len(self._buffer) >= _LINE_LIMIT:
                self._sink.violated("command line too long")
                self._say("500 5.5.2 line too long")
                self.hang_up()
            return False
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        if is_stray(line):
            self._sink.violated("stray CR, LF or NUL in a command")
        if self._buffer and not self._pipelining:
            self._sink.violated("pipelined without being offered")
        self._command(line.rstrip(b"\r\n"))
        return True

    def _command(self, line: bytes) -> None:
        verb, _, rest = line.partition(b" ")
        name = verb.decode("ascii", "replace").upper()
        self._sink.commands[name] = self._sink.commands.get(name, 0) + 1
        if name in {"EHLO", "HELO"}:
            self._hello(name)
        elif name == "MAIL":
            self._mail(rest)
        elif name == "RCPT":
            self._rcpt(rest)
        elif name == "DATA":
            self._data()
        elif name == "RSET":
            self._forget()
            self._say("250 2.0.0 OK")
        elif name == "QUIT":
            self._say("221 2.0.0 Bye")
            self.hang_up()
        else:
            self._say("250 2.0.0 OK" if name == "NOOP" else "502 5.5.1 command not implemented")

    def _hello(self, name: str) -> None:
        options = self._sink.options
        self._forget()
        if name == "HELO":
            self._say(f"250 {options.hostname}")
            return
        if options.ehlo != _DONE:
            self._say(f"{options.ehlo} EHLO is disabled")
            return
        self._pipelining = "PIPELINING" in options.extensions
        lines = [options.hostname, *sorted(options.extensions - {"SIZE"})]
        if "SIZE" in options.extensions:
            lines.append(f"SIZE {options.size_limit}")
        for line in lines[:-1]:
            self._say(f"250-{line}")
        self._say(f"250 {lines[-1]}")

    def _mail(self, rest: bytes) -> None:
        parsed = read_path(rest, b"FROM:")
        if parsed is None:
            self._say(_SYNTAX)
            return
        if self._sender is not None:
            self._say("503 5.5.1 nested MAIL")
            return
        path, parameters = parsed
        options = self._sink.options
        refusal, unknown = refuse_parameters(parameters, options.extensions, options.size_limit)
        if unknown is not None:
            self._sink.violated(f"parameter not offered: {unknown}")
        self._smtputf8 = b"SMTPUTF8" in parameters.upper().split()
        sender = self._decode(path)
        if refusal is None and sender is None:
            refusal = _NEEDS_SMTPUTF8
        if refusal is None:
            self._sender = sender
        self._say(refusal or "250 2.1.0 OK")

    def _decode(self, path: bytes) -> str | None:
        """An address as text; None when it is not ASCII and SMTPUTF8 was not declared (RFC 6531 §3.5)."""
        if path.isascii():
            return path.decode("ascii")
        if not self._smtputf8:
            self._sink.violated("address with octets above 127 without SMTPUTF8")
            return None
        return path.decode("utf-8", "surrogateescape")

    def _rcpt(self, rest: bytes) -> None:
        parsed = read_path(rest, b"TO:")
        recipient = self._decode(parsed[0]) if parsed is not None else None
        if self._sender is None:
            self._say("503 5.5.1 MAIL first")
        elif parsed is None or parsed[1] or not parsed[0]:
            self._say(_SYNTAX)
        elif recipient is None:
            self._say(_NEEDS_SMTPUTF8)
        elif len(self._recipients) >= self._sink.options.max_recipients:
            self._say("452 4.5.3 too many recipients")
        else:
            self._judge(recipient)

    def _judge(self, recipient: str) -> None:
        """RCPT as the recipient's name scripts it."""
        behaviour = behaviour_of(recipient)
        code = behaviour.rcpt_code
        if behaviour.once and self._sink.seen_before(self._sender or "", recipient):
            code = _DONE
        if code is None:
            self._held = True
        elif code == _DONE:
            self._recipients.append(recipient)
            self._behaviour = gravest(self._behaviour, behaviour)
            self._say("250 2.1.5 OK")
        else:
            self._say(f"{code} {code // 100}.1.1 scripted in the recipient")
            if code == _CLOSING:
                self.hang_up()

    def _data(self) -> None:
        if not self._recipients:
            self._say("554 5.5.1 no valid recipients")
        elif self._behaviour.ending is Ending.HANG_DATA:
            self._held = True
        else:
            if self._buffer:
                self._sink.violated("content before 354")
            self._in_content = True
            self._searched = 0
            self._say("354 end with <CRLF>.<CRLF>")

    def _content(self) -> bool:
        """Take the content out of the buffer; False while its end has not come."""
        if self._behaviour.ending is Ending.DROP_DATA:
            self.abort()
            return False
        found = find_end(self._buffer, self._searched)
        if found is None:
            self._searched = len(self._buffer)
            return False
        end, after = found
        content = bytes(self._buffer[:end])
        del self._buffer[:after]
        self._in_content = False
        if is_stray(content):
            self._sink.violated("stray CR, LF or NUL in content")
        self._finish(undo_dots(content))
        return True

    def _finish(self, content: bytes) -> None:
        """Record and answer, as the recipients' names script it."""
        behaviour, limit = self._behaviour, self._sink.options.size_limit
        sender, recipients = self._sender or "", tuple(self._recipients)
        self._forget()
        if 0 < limit < len(content):
            self._say("552 5.3.4 message too big")
            return
        if behaviour.ending is Ending.REFUSE:
            self._say(f"{behaviour.dot_code} {behaviour.dot_code // 100}.6.0 scripted in the recipient")
            if behaviour.dot_code == _CLOSING:
                self.hang_up()
            return
        answered = behaviour.ending not in {Ending.DROP_DOT, Ending.HANG_DOT}
        waiting = self._sink.accept(sender, recipients, content, answered=answered)
        reply = f"{_RECORDED} as {self._sink.count}"
        if behaviour.ending is Ending.DROP_DOT:
            self.abort()
        elif behaviour.ending is Ending.HANG_DOT:
            self._held = True
        elif waiting is None and not behaviour.delay:
            self._say(reply)
        else:
            self._held = True
            self._sink.later(self._answer_after(waiting, behaviour.delay, reply))

    async def _answer_after(self, waiting: Awaitable[object] | None, delay: float, reply: str) -> None:
        """Keep the reply back, and everything that came after the dot with it."""
        if waiting is not None:
            await waiting
        await asyncio.sleep(delay)
        if self._transport is not None:
            self._say(reply)
            self._held = False
            self._pump()


class Sink:
    """The server; listens between entering and leaving `async with`.

    received: the records in order. count: of all records, as the replies number them. violations: what a careful
    client would not have sent, one line each. commands: how often each verb came. connections: how many were made in
    all; most_connections: at once.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        log: Path | None = None,
        callback: Callable[[Received], Awaitable[object] | None] | None = None,
        greylisted: set[tuple[str, str]] | None = None,
        **options: Any,
    ) -> None:
        """`port` 0 takes any free port; `callback` is called, and awaited, before the 250 of each record.

        `greylisted`: a memory of greylisting that several sinks share. `options` are the fields of SinkOptions.
        """
        self.host = host
        self.port = port
        self.options = SinkOptions(**options)
        self.received: list[Received] = []
        self.count = 0
        self.violations: list[str] = []
        self.commands: dict[str, int] = {}
        self.connections = 0
        self.most_connections = 0
        self._log_path = log
        self._log: int | None = None
        self._callback = callback
        self._server: asyncio.Server | None = None
        self._sessions: set[Session] = set()
        self._replies: set[asyncio.Task[None]] = set()
        self._greylisted = set[tuple[str, str]]() if greylisted is None else greylisted
        self._news = asyncio.Event()
        self._closing = False

    @property
    def open_connections(self) -> int:
        """Connections that stand now."""
        return len(self._sessions)

    async def __aenter__(self) -> Self:
        """Begin to listen; afterwards `port` is the real one."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: Session(self), self.host, self.port, backlog=1024)
        except (OSError, OverflowError) as error:
            said = port_holder.why(error, self.host, self.port)
            raise ListenFailed(f"sink: cannot listen on {self.host}:{self.port}: {said}") from error
        self.port = self._server.sockets[0].getsockname()[1]
        if self._log_path is not None:
            self._log = os.open(self._log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening and cut every connection."""
        self._closing = True
        if self._server is not None:
            self._server.close()
        for session in tuple(self._sessions):
            session.abort()
        for reply in self._replies:
            reply.cancel()
        while self._sessions or self._replies:
            await self._next_news()
        if self._server is not None:
            await self._server.wait_closed()
        if self._log is not None:
            os.close(self._log)
            self._log = None

    async def wait_for(self, count: int, timeout: float = 60.0) -> list[Received]:  # noqa: ASYNC109 - of the wait
        """The first `count` records, as soon as there are that many; TimeoutError after `timeout` seconds."""
        await self._wait_until(lambda: len(self.received) >= count, timeout)
        return self.received[:count]

    async def wait_until_empty(self, timeout: float = 60.0) -> None:  # noqa: ASYNC109 - of the wait
        """Until no connection stands any more; TimeoutError after `timeout` seconds."""
        await self._wait_until(lambda: not self._sessions, timeout)

    async def _wait_until(self, condition: Callable[[], bool], limit: float) -> None:
        async with asyncio.timeout(limit):
            while not condition():
                await self._next_news()

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    # The sessions call the methods below.

    def joined(self, session: Session) -> bool:
        """A connection was made; whether it is one too many."""
        self.connections += 1
        self._sessions.add(session)
        self.most_connections = max(self.most_connections, len(self._sessions))
        if self._closing:
            session.abort()
        return len(self._sessions) > self.options.max_connections

    def left(self, session: Session) -> None:
        """A connection is gone."""
        self._sessions.discard(session)
        self._news.set()

    def violated(self, what: str) -> None:
        """A client sent what a careful one would not."""
        self.violations.append(what)

    def seen_before(self, sender: str, recipient: str) -> bool:
        """Greylisting's memory: whether this pair was asked about before."""
        known = (sender, recipient) in self._greylisted
        self._greylisted.add((sender, recipient))
        return known

    def accept(
        self, sender: str, recipients: tuple[str, ...], content: bytes, *, answered: bool
    ) -> Awaitable[object] | None:
        """Record a message; what to await before its 250, if anything."""
        record = Received(
            at=time.time(),
            sender=sender,
            recipients=recipients,
            sha256=hashlib.sha256(content).hexdigest(),
            size=len(content),
            answered=answered,
            content=content if self.options.keep_content else None,
        )
        if self._log is not None:
            os.write(self._log, f"{record.as_json()}\n".encode())
        self.received.append(record)
        self.count += 1
        self._news.set()
        return self._callback(record) if self._callback is not None else None

    def later(self, reply: Coroutine[object, object, None]) -> None:
        """Run a session's delayed reply, as long as the sink runs."""
        running = asyncio.ensure_future(reply)
        self._replies.add(running)
        running.add_done_callback(self._replied)

    def _replied(self, reply: asyncio.Task[None]) -> None:
        self._replies.discard(reply)
        self._news.set()
