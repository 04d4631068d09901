"""test_smtp_body — sending a large message, and every interruption"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from queued.outcome.classify import classify
from queued.smtp import client
from queued.smtp.client import SmtpConnection
from queued.smtp.content import wire_pieces
from queued.smtp.transaction import Fault, Timeouts, Transaction, TransactionResult
from tests.fixtures.peers.scripted_peer import EOF, HANG, PLAIN, ScriptedPeer, until
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

LARGE = Transaction("alice@example.com", ("bob@example.net", "carol@example.net"), b"x" * 62 * 500_000)
SHORT = Timeouts(body=0.1)
UP_TO_354 = (*PLAIN, "MAIL", b"250 OK\r\n", "RCPT", b"250 OK\r\n", "RCPT", b"250 OK\r\n", "DATA", b"354 go on\r\n")


async def send(peer: ScriptedPeer, timeouts: Timeouts) -> TransactionResult:
    """The large message, to a peer that will not have it; after that the connection is done for."""
    connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=timeouts)
    async with asyncio.timeout(PATIENCE):
        result = await connection.send(LARGE)
    assert not connection.usable
    await connection.close()
    return result


def fault_of(result: TransactionResult) -> Fault:
    assert result.fault is not None
    assert result.recipients == (None, None)
    return result.fault


async def test_a_host_that_stops_reading_the_content_times_out() -> None:
    async with ScriptedPeer(*UP_TO_354, HANG) as peer:
        fault = fault_of(await send(peer, SHORT))
        assert (fault.kind, fault.phase, fault.uncertain) == ("timeout", "body", False)


async def test_a_refusal_in_mid_content_is_deferred_since_no_reply_was_due() -> None:
    async with ScriptedPeer(*UP_TO_354, b"552 5.3.4 too big\r\n", HANG) as peer:
        result = await send(peer, Timeouts())
        assert [(o.kind, o.enhanced) for o in classify(result)] == [("deferred", "4.5.0")] * 2
        assert classify(result)[0].text == "unexpected reply: 552 5.3.4 too big"


async def test_a_250_before_the_end_of_content_is_not_a_delivery() -> None:
    async with ScriptedPeer(*UP_TO_354, b"250 OK\r\n", HANG) as peer:
        fault = fault_of(await send(peer, Timeouts()))
        assert (fault.kind, fault.phase, fault.uncertain) == ("protocol", "body", False)


async def test_a_refusal_stops_sending_the_content(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    def counted(content: bytes, prefix: bytes) -> Iterator[bytes]:
        nonlocal taken
        for piece in wire_pieces(content, prefix):
            taken += 1
            yield piece

    monkeypatch.setattr(client, "wire_pieces", counted)
    async with ScriptedPeer(*UP_TO_354, b"552 5.3.4 too big\r\n", HANG) as peer:
        await send(peer, Timeouts())
    assert taken < len(list(wire_pieces(LARGE.content))) / 2


async def test_a_host_that_closes_and_stops_reading_is_noticed() -> None:
    """Octets still wait to leave, so the end is known from the end of file alone."""
    async with ScriptedPeer(*UP_TO_354, EOF) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=Timeouts())
        sending = asyncio.ensure_future(connection.send(LARGE))
        await until(lambda: connection._wire._paused)
        peer.go.set()
        async with asyncio.timeout(PATIENCE):
            fault = fault_of(await sending)
        assert (fault.kind, fault.phase, fault.uncertain) == ("closed", "body", False)


async def test_a_host_that_closes_with_its_354_is_not_uncertain() -> None:
    """One TLS record can bring both; as nothing was sent yet, nothing is uncertain."""
    small = Transaction("alice@example.com", ("bob@example.net", "carol@example.net"), b"x\r\n")
    async with ScriptedPeer(*UP_TO_354[:-1], HANG) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=Timeouts(dot=5))
        sending = asyncio.ensure_future(connection.send(small))
        await until(lambda: b"DATA" in peer.heard)
        wire, reply = connection._wire, b"354 go on\r\n"
        wire.get_buffer(-1)[: len(reply)] = reply
        wire.buffer_updated(len(reply))
        wire.eof_received()
        fault = fault_of(await sending)
        assert (fault.kind, fault.phase, fault.uncertain) == ("closed", "body", False)


async def test_sending_large_content_does_not_block_the_loop() -> None:
    turns: list[int] = []
    async with ScriptedPeer(*PLAIN, HANG) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=Timeouts())
        asyncio.get_running_loop().call_soon(turns.append, 1)
        await connection._wire.drain("body", 1)
        assert turns == [1]
        connection.abort()


async def test_closing_is_bounded_when_the_host_does_not_read() -> None:
    async with ScriptedPeer(*PLAIN, HANG) as peer:
        timeouts = Timeouts(quit=0.05)
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=timeouts)
        connection._wire.write(b"x" * 20_000_000)
        async with asyncio.timeout(PATIENCE):
            await connection.close()
        await until(connection._wire._closed.done)
