"""test_smtp_client — the SMTP client against the sink: arrivals, and the outcome of each refusal"""

from __future__ import annotations

import asyncio

import pytest

from queued.outcome.classify import classify
from queued.smtp.client import SmtpConnection
from queued.smtp.content import PIECE
from queued.smtp.transaction import ConversationError, Timeouts
from scripts.sink.records import EXTENSIONS, Received
from scripts.sink.server import Sink
from tests.fixtures.daemons.smtp_send import ALICE, BOB, CONTENT, codes, connect, send_once, to
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.peers.scripted_peer import until
from tests.fixtures.waiting import PATIENCE


@pytest.mark.parametrize("extensions", [EXTENSIONS, EXTENSIONS - {"PIPELINING"}, frozenset()])
async def test_a_message_arrives_unaltered(extensions: frozenset[str]) -> None:
    async with Sink(keep_content=True, extensions=extensions) as sink:
        result = await send_once(sink, to(BOB, "carol@example.net"))
        assert codes(result) == [250, 250]
        assert result.fault is None
        assert result.final is not None
        assert result.final.enhanced == "2.0.0"
        (record,) = sink.received
        assert (record.sender, record.recipients, record.content) == (ALICE, (BOB, "carol@example.net"), CONTENT)
        assert sink.violations == []


async def test_the_null_sender_and_unusual_addresses_are_sent() -> None:
    odd = ('"two words"@example.com', '"a>b\\"c"@example.com', "a.+-_%b@example.com", "postmaster")
    async with Sink() as sink:
        result = await send_once(sink, to(*odd, sender=""))
        assert codes(result) == [250] * 4
        assert (sink.received[0].sender, sink.received[0].recipients) == ("", odd)


@pytest.mark.parametrize("ehlo", [500, 502, 550])
async def test_helo_is_used_if_ehlo_is_refused(ehlo: int) -> None:
    async with Sink(ehlo=ehlo) as sink:
        connection = await connect(sink)
        assert connection.extensions == {}
        assert codes(await connection.send(to(BOB))) == [250]
        await connection.close()
        assert sink.commands["HELO"] == 1
        assert sink.violations == []


@pytest.mark.parametrize("extensions", [EXTENSIONS, EXTENSIONS - {"PIPELINING"}])
async def test_each_recipient_gets_its_own_reply(extensions: frozenset[str]) -> None:
    async with Sink(extensions=extensions) as sink:
        connection = await connect(sink)
        result = await connection.send(to("permerror@x.example", BOB, "temperror@x.example", "552rcpt@x.example"))
        assert codes(result) == [550, 250, 451, 552]
        # 552 with 5.2.x speaks of a full mailbox; only a bare one means 452 (RFC 5321 §4.5.3.1.10).
        assert [o.kind for o in classify(result)] == ["failed", "delivered", "deferred", "failed"]
        assert sink.received[0].recipients == (BOB,)
        assert connection.usable
        assert codes(await connection.send(to(BOB))) == [250]
        assert "RSET" not in sink.commands  # the final dot ended the transaction
        await connection.close()


@pytest.mark.parametrize("extensions", [EXTENSIONS, EXTENSIONS - {"PIPELINING"}])
async def test_the_reply_to_quit_proves_the_refusal_of_all_recipients(extensions: frozenset[str]) -> None:
    async with Sink(extensions=extensions) as sink:
        connection = await connect(sink)
        result = await connection.send(to("permerror@x.example", "temperror@x.example"))
        assert codes(result) == [550, 451]
        assert result.final is None
        assert not connection.usable
        assert sink.commands["QUIT"] == 1  # its reply shows that none was moved by one too many
        assert sink.violations == []


@pytest.mark.parametrize("code", [451, 550, 421])
async def test_a_refusal_after_the_dot_fails_the_recipients(code: int) -> None:
    async with Sink() as sink:
        connection = await connect(sink)
        result = await connection.send(to(BOB, f"{code}dot@x.example"))
        assert codes(result) == [code, code]
        assert result.final is not None
        assert not any(outcome.uncertain for outcome in classify(result))
        assert connection.usable is (code == 451)  # a permanent one is believed for the reply to QUIT alone
        assert sink.received == []
        await connection.close()


async def test_the_second_try_passes_greylisting() -> None:
    async with Sink() as sink:
        assert codes(await send_once(sink, to("greylist@x.example"))) == [451]
        assert codes(await send_once(sink, to("greylist@x.example"))) == [250]


async def test_a_missing_reply_to_rcpt_times_out() -> None:
    async with Sink() as sink:
        result = await send_once(sink, to(BOB, "timeout@x.example"), rcpt=0.05)
        assert result.fault is not None
        assert (result.fault.kind, result.fault.phase) == ("timeout", "rcpt")
        assert codes(result) == [None, None]
        assert sink.received == []


async def test_a_missing_reply_to_data_times_out() -> None:
    async with Sink() as sink:
        result = await send_once(sink, to("hangdata@x.example"), data=0.05)
        assert result.fault is not None
        assert (result.fault.kind, result.fault.phase) == ("timeout", "data")


@pytest.mark.parametrize(("word", "kind"), [("dropdot", "closed"), ("hangdot", "timeout")])
async def test_no_reply_to_the_final_dot_is_uncertain(word: str, kind: str) -> None:
    async with Sink() as sink:
        connection = await connect(sink, dot=0.1)
        result = await connection.send(to("permerror@x.example", f"{word}@x.example"))
        assert result.fault is not None
        assert (result.fault.kind, result.fault.phase, result.fault.uncertain) == (kind, "dot", True)
        assert codes(result) == [550, None]  # earlier replies stay valid
        assert [o.uncertain for o in classify(result)] == [False, True]
        assert [record.answered for record in sink.received] == [False]  # and indeed it had arrived
        assert not connection.usable


async def test_a_disconnect_in_mid_content_is_not_uncertain() -> None:
    content = b"x" * 62 + b"\r\n"
    async with Sink() as sink:
        result = await send_once(sink, to("dropdata@x.example", content=content * 200_000))
        assert result.fault is not None
        assert (result.fault.kind, result.fault.phase, result.fault.uncertain) == ("closed", "body", False)
        assert sink.received == []


async def test_a_slow_host_is_waited_for() -> None:
    async with Sink() as sink:
        # Longer than the limits of the steps before: theirs must not count any more.
        assert codes(await send_once(sink, to("slow0.4@x.example"), mail=0.2, data=0.2, dot=5)) == [250]


async def test_a_callback_is_awaited_before_the_reply() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow_down(record: Received) -> None:
        assert record.sender == ALICE
        entered.set()
        await leave.wait()

    async with Sink(callback=slow_down) as sink:
        sending = asyncio.ensure_future(send_once(sink, to(BOB)))
        await asyncio.wait_for(entered.wait(), PATIENCE)
        assert not sending.done()
        leave.set()
        assert codes(await sending) == [250]


async def test_a_large_message_does_not_block_the_loop() -> None:
    content = (b"." + b"x" * 61 + b"\r\n") * 200_000
    turns = 0
    loop = asyncio.get_running_loop()

    def turn() -> None:
        nonlocal turns
        turns += 1
        handle[0] = loop.call_soon(turn)

    async with Sink() as sink:
        connection = await connect(sink)
        handle = [loop.call_soon(turn)]
        result = await connection.send(to(BOB, content=content))
        handle[0].cancel()
        await connection.close()
        assert codes(result) == [250]
        assert sink.received[0].size == len(content)
        assert turns > len(content) // PIECE


async def test_many_transactions_use_one_connection() -> None:
    async with Sink() as sink:
        connection = await connect(sink)
        for number in range(200):
            assert codes(await connection.send(to(BOB, f"r{number}@example.net"))) == [250, 250]
        assert connection.transactions == 200
        assert connection.opened_at <= connection.last_used
        await connection.close()
        await sink.wait_until_empty()
        assert (sink.connections, len(sink.received), sink.commands["QUIT"]) == (1, 200, 1)


async def test_a_transaction_cancelled_midway_cuts_the_connection() -> None:
    async with Sink() as sink:
        connection = await connect(sink)
        sending = asyncio.ensure_future(connection.send(to("hangdot@x.example")))
        await sink.wait_for(1)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert not connection.usable
        await sink.wait_until_empty()
        result = await connection.send(to(BOB))
        assert result.fault is not None
        assert (result.fault.kind, result.fault.phase) == ("closed", "mail")


async def test_an_unused_connection_notices_that_the_host_left() -> None:
    async with Sink() as sink:
        connection = await connect(sink)
    await until(lambda: not connection.usable)
    result = await connection.send(to(BOB))
    assert result.fault is not None
    assert (result.fault.kind, codes(result)) == ("closed", [None])
    await connection.close()


@pytest.mark.parametrize("greeting", [421, 450, 554])
async def test_a_refused_greeting_raises_its_reply(greeting: int) -> None:
    async with Sink(greeting=greeting) as sink:
        with pytest.raises(ConversationError) as caught:
            await connect(sink)
        fault = caught.value.fault
        assert (fault.kind, fault.phase) == ("refused", "greeting")
        assert fault.reply is not None
        assert fault.reply.code == greeting
        await sink.wait_until_empty()


async def test_a_connection_over_the_hosts_limit_is_refused() -> None:
    async with Sink(max_connections=1) as sink:
        first = await connect(sink)
        with pytest.raises(ConversationError, match=r"421 4\.7\.0 too many connections"):
            await connect(sink)
        assert first.usable
        await first.close()


async def test_a_refused_connection_is_a_connect_fault() -> None:
    port = free_port()
    with pytest.raises(ConversationError) as caught:
        await SmtpConnection.open("127.0.0.1", port, hostname="h.example", timeouts=Timeouts())
    assert (caught.value.fault.kind, caught.value.fault.phase) == ("connect", "connect")


@pytest.mark.parametrize(("host", "port"), [("x" * 64 + ".example", 25), ("a\x00b", 25), ("127.0.0.1", 99999)])
async def test_unreachable_addresses_are_connect_faults(host: str, port: int) -> None:
    with pytest.raises(ConversationError) as caught:
        await SmtpConnection.open(host, port, hostname="h.example", timeouts=Timeouts())
    assert caught.value.fault.kind == "connect"


@pytest.mark.parametrize("hostname", ["", "two words", "a\r\nMAIL", "grün.example"])
async def test_an_invalid_ehlo_name_is_refused(hostname: str) -> None:
    async with Sink() as sink:
        with pytest.raises(ValueError, match="host name"):
            await SmtpConnection.open(sink.host, sink.port, hostname=hostname, timeouts=Timeouts())
        assert sink.connections == 0
