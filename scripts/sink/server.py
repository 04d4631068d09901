"""server — an SMTP server that takes mail, writes down what it took, and fails on request

Owns: Sink, its options and its records.
Guarantees: a record is kept (and in the log file, when there is one) before the message is answered; what
an address makes it do is in scripts/sink/behaviour.py; leaving `async with` closes every connection.
Raises: ListenFailed when the address cannot be bound; TimeoutError from `wait_for`.
See: Postfix smtp-sink(1), whose part it takes where faults must be scripted per recipient.
Bugs: the log is written without fsync: it survives the sink's own death, not the machine's.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from scripts.sink.session import Session
from shared.errors import ListenFailed, cause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path
    from types import TracebackType

EXTENSIONS = frozenset({"PIPELINING", "8BITMIME", "SMTPUTF8", "SIZE", "ENHANCEDSTATUSCODES"})


@dataclass(frozen=True, slots=True)
class Received:
    """One transaction whose content came whole.

    at: Unix time in seconds. sender, recipients: without angle brackets, as sent. sha256, size: of the
    content with its dots undone, in hex and octets. answered: whether a 250 followed. content: the octets,
    when the sink keeps them.
    """

    at: float
    sender: str
    recipients: tuple[str, ...]
    sha256: str
    size: int
    answered: bool
    content: bytes | None = field(default=None, repr=False)

    def as_json(self) -> str:
        """The record's line in the log, without the content."""
        return json.dumps(
            {
                "at": self.at,
                "sender": self.sender,
                "recipients": self.recipients,
                "sha256": self.sha256,
                "size": self.size,
                "answered": self.answered,
            },
            ensure_ascii=True,
        )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How the sink presents itself.

    extensions: EHLO keywords to offer, out of EXTENSIONS. greeting, ehlo: codes to answer a connection and
    EHLO with. size_limit: largest message in octets, 0 for any. max_recipients: per transaction, further
    ones get 452. max_connections: at once, further ones get 421. keep_content: hold the octets in memory.
    """

    hostname: str = "sink.example"
    extensions: frozenset[str] = EXTENSIONS
    greeting: int = 220
    ehlo: int = 250
    size_limit: int = 0
    max_recipients: int = 1000  # Postfix smtpd_recipient_limit
    max_connections: int = 1000
    keep_content: bool = False


class Sink:
    """The server; listens between entering and leaving `async with`.

    received: the records in order. violations: what a careful client would not have sent, one line each.
    commands: how often each verb came. connections: how many were made in all; most_connections: at once.
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
            raise ListenFailed(f"sink: cannot listen on {self.host}:{self.port}: {cause(error)}") from error
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

    async def wait_for(self, count: int, timeout: float = 10.0) -> list[Received]:  # noqa: ASYNC109 - of the wait
        """The first `count` records, as soon as there are that many; TimeoutError after `timeout` seconds."""
        await self._wait_until(lambda: len(self.received) >= count, timeout)
        return self.received[:count]

    async def wait_until_empty(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109 - of the wait
        """Until no connection stands any more; TimeoutError after `timeout` seconds."""
        await self._wait_until(lambda: not self._sessions, timeout)

    async def _wait_until(self, condition: Callable[[], bool], limit: float) -> None:
        async with asyncio.timeout(limit):
            while not condition():
                await self._next_news()

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    # What follows is called by the sessions.

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
