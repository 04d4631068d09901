"""test_next_hop_tls — a next hop under TLS holds no connection after QUIT, and costs little without sending a reply

Owns: session tickets without end, and a host that does not end its TLS session.
See: RFC 8446 sections 4.6.1, 6.1; queued/smtp/record_limit.py; queued/smtp/wire.py.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from queued.smtp import wire
from queued.smtp.client import SmtpConnection
from queued.smtp.transaction import ConversationError, Timeouts
from queued.tls.demanded import TlsWanted
from tests.fixtures.peers.tls_peer import server_context
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.peers.certificates import Authority

WANTED = TlsWanted(speak="must")
LONG = wire._MOST_HEARD + 3 * wire._FOR_EACH  # three commands up to the EHLO under TLS


class Host:
    """A host up to its handshake; `flood` is what it sends then, at once. gone: our connection to it has ended."""

    def __init__(self, context: ssl.SSLContext, flood: int) -> None:
        self.context, self.flood = context, flood
        self.port = 0
        self.gone = asyncio.Event()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Up to the end of the connection; its own side of the TLS session stays open."""
        writer.write(b"220 evil.test\r\n")
        await reader.readline()
        writer.write(b"250-evil.test\r\n250 STARTTLS\r\n")
        await reader.readline()
        writer.write(b"220 go on\r\n")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = self.context.wrap_bio(incoming, outgoing, server_side=True)
        try:
            while octets := await reader.read(65536):
                incoming.write(octets)
                self.step(session)
                writer.write(outgoing.read())
                await writer.drain()
        except ConnectionError:
            pass
        self.gone.set()
        writer.transport.abort()

    def step(self, session: ssl.SSLObject) -> None:
        """Answer what can be read."""
        try:
            session.do_handshake()
            while line := session.read(65536):
                if line.startswith(b"EHLO") and not self.flood:
                    session.write(b"250 evil.test\r\n")
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass


@asynccontextmanager
async def listening(authority: Authority, *, flood: int = 0) -> AsyncIterator[Host]:
    """The host; with `flood` it sends so many session tickets, and no reply."""
    context = server_context(authority.issue("evil.test", "127.0.0.1"))
    context.num_tickets = flood or 2
    host = Host(context, flood)
    server = await asyncio.start_server(host.talk, "127.0.0.1", 0)
    host.port = server.sockets[0].getsockname()[1]
    async with server:
        yield host


async def test_session_tickets_without_a_reply_end_the_connection(authority: Authority) -> None:
    """Each is decrypted, and none is a reply: a host could keep a worker busy for its time limits."""
    async with listening(authority, flood=3000) as host, asyncio.timeout(PATIENCE):
        with pytest.raises(ConversationError) as ended:
            await SmtpConnection.open(
                "127.0.0.1", host.port, hostname="us.test", timeouts=Timeouts(helo=3600), tls=WANTED
            )
        assert (ended.value.fault.kind, ended.value.fault.text) == ("protocol", f"replies of more than {LONG} octets")


async def test_a_host_that_does_not_end_its_session_holds_no_connection(authority: Authority) -> None:
    """It held each for thirty seconds after QUIT, beside those that `concurrency` allows."""
    async with listening(authority) as host, asyncio.timeout(PATIENCE):
        connection = await SmtpConnection.open(
            "127.0.0.1", host.port, hostname="us.test", timeouts=Timeouts(), tls=WANTED
        )
        await connection.close()
        await host.gone.wait()
