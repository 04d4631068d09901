"""protocol — one SMTP connection, on aiosmtpd

Owns: what we do differently from aiosmtpd: DATA read in blocks with bounded memory, our transaction in place of its
    envelope, 451 in place of its 500 for our own faults, and the register of open connections.
Called by: smtpd.listener makes one for each connection; smtpd.session answers its hooks.
Guarantees: an exception of ours never reaches the client. A connection that is told to stop finishes the message it is
    sending and hears 421 then.
See: RFC 5321 sections 3.8, 4.1.1.4. Bugs: aiosmtpd's own syntax replies carry no enhanced status code, so
    ENHANCEDSTATUSCODES is not offered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from aiosmtpd.smtp import SMTP, Envelope, Session, syntax

from shared import events
from shared.address import split_path
from smtpd import replies
from smtpd.data_reader import DataReader

if TYPE_CHECKING:
    from shared.message import Address, Recipient

# Larger than anything the transport hands over at once, so that a read always empties the stream's buffer.
_BLOCK = 1 << 20


class Transaction(Envelope):
    """aiosmtpd's envelope with the addresses parsed, and each recipient already decided."""

    def __init__(self) -> None:
        super().__init__()
        self.sender: Address | None = None
        self.recipients: list[Recipient] = []
        self.content_octets: bytes = b""


class Connection(SMTP):
    """One client. `register` holds every open connection of the server."""

    envelope: Transaction
    session: Session
    data_size_limit: int

    def __init__(self, handler: object, register: set[Connection], **settings: Any) -> None:
        super().__init__(handler, **settings)
        self._register = register
        self._receiving = False
        self._stopping = False
        self.ended = asyncio.Event()

    def _create_envelope(self) -> Transaction:
        return Transaction()

    def _getaddr(self, arg: str) -> tuple[str | None, str | None]:
        """In place of aiosmtpd's, which mends what it cannot read into another mailbox."""
        return (split_path(arg) or (None, None)) if arg else ("", "")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Also called a second time, after STARTTLS."""
        super().connection_made(transport)
        if self not in self._register:
            events.emit("session.opened", client=self.session.peer)
            self._register.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone, or we closed."""
        self._register.discard(self)
        events.emit("session.closed", client=self.session.peer)
        self.ended.set()
        super().connection_lost(error)

    def stop(self) -> None:
        """Say 421 and close: now when idle, else after the reply to the message being received."""
        self._stopping = True
        if not self._receiving and self.transport is not None and not self.transport.is_closing():
            self._writer.write(replies.R421_STOPPING.encode() + b"\r\n")
            self.transport.close()

    def _timeout_cb(self) -> None:
        """Idle for too long. Not close(), which waits for a client that does not read to read everything first."""
        if self.transport is not None:
            cast("asyncio.WriteTransport", self.transport).abort()

    @syntax("DATA")
    async def smtp_DATA(self, arg: str | None) -> None:
        """RFC 5321 section 4.1.1.4."""
        if await self.check_helo_needed():
            return
        if not self.envelope.recipients:
            await self.push(replies.R503_NEED_RCPT)
            return
        if arg:
            await self.push(replies.R501_DATA_ARGUMENT)
            return
        self._receiving = True
        try:
            await self.push(replies.R354_GO_ON)
            content = await self._read_content()
            if content is None:
                reply = replies.R552_TOO_BIG.format(limit=self.data_size_limit)
            else:
                self.envelope.content_octets = content
                reply = await self._call_handler_hook("DATA")
            await self.push(reply)
        finally:
            self.envelope = self._create_envelope()
            self._receiving = False
        if self._stopping:
            self.stop()

    async def _read_content(self) -> bytes | None:
        """The content, or None when it was larger than the limit and dropped."""
        reader = DataReader(self.data_size_limit)
        while True:
            block = await self._reader.read(_BLOCK)
            if not block:
                raise ConnectionResetError
            self._reset_timeout()
            rest = reader.feed(block)
            if rest is not None:
                if rest:  # commands pipelined behind the end of data
                    self._reader.feed_data(rest)
                return reader.content()
