"""test_smtp_faults — the client against peers that break the rules, step by step"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from queued.outcome.classify import classify
from queued.smtp.client import SmtpConnection
from queued.smtp.transaction import ConversationError, Fault, Timeouts, Transaction, TransactionResult
from tests.fixtures.peers.scripted_peer import (
    CLOSE,
    CONTENT,
    EOF,
    GREETING,
    HANG,
    PIPELINING,
    PLAIN,
    RESET,
    ScriptedPeer,
    until,
)
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from queued.waiting.watchdog import Phase

BOB = "bob@example.net"
BODY = b"Subject: x\r\n\r\ntext\r\n"
MESSAGE = Transaction("alice@example.com", (BOB, "carol@example.net"), BODY)
SHORT = Timeouts(connect=5, greeting=0.1, helo=0.1, mail=0.1, rcpt=0.1, data=0.1, body=0.1, dot=0.1, rset=0.1, quit=0.1)
PATIENT = Timeouts()

MAIL = ("MAIL FROM:<alice@example.com>", b"250 OK\r\n")
RCPTS = (f"RCPT TO:<{BOB}>", b"250 OK\r\n", "RCPT TO:<carol@example.net>", b"250 OK\r\n")
DATA = ("DATA", b"354 go on\r\n")

# The dialogue before each phase of a conversation without pipelining.
BEFORE: dict[Phase, tuple[bytes | str, ...]] = {
    "greeting": (),
    "helo": GREETING,
    "mail": (*PLAIN, MAIL[0]),
    "rcpt": (*PLAIN, *MAIL, RCPTS[0]),
    "data": (*PLAIN, *MAIL, *RCPTS, DATA[0]),
    "dot": (*PLAIN, *MAIL, *RCPTS, *DATA, CONTENT),
}


async def converse(
    peer: ScriptedPeer, timeouts: Timeouts, transaction: Transaction = MESSAGE
) -> TransactionResult | Fault:
    """One transaction; the fault instead, when it does not come to one."""
    try:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=timeouts)
    except ConversationError as error:
        return error.fault
    result = await connection.send(transaction)
    assert not connection.usable
    await connection.close()
    return result


def fault_of(result: TransactionResult | Fault) -> Fault:
    if isinstance(result, Fault):
        return result
    assert result.fault is not None
    assert result.recipients == (None, None)
    return result.fault


@pytest.mark.parametrize("phase", BEFORE)
async def test_every_step_has_its_time_limit(phase: Phase) -> None:
    async with ScriptedPeer(*BEFORE[phase], HANG) as peer:
        fault = fault_of(await converse(peer, SHORT))
        assert (fault.kind, fault.phase, fault.uncertain) == ("timeout", phase, phase == "dot")


@pytest.mark.parametrize("phase", BEFORE)
async def test_a_trickle_does_not_extend_the_limit(phase: Phase) -> None:
    trickle: list[bytes | str] = [b"250-x\r\n"] * 3
    async with ScriptedPeer(*BEFORE[phase], *trickle, HANG) as peer:
        fault = fault_of(await converse(peer, SHORT))
        assert (fault.kind, fault.phase) == ("timeout", phase)


@pytest.mark.parametrize("phase", BEFORE)
@pytest.mark.parametrize("how", [CLOSE, RESET])
async def test_a_disconnect_in_every_step_is_a_fault(phase: Phase, how: str) -> None:
    async with ScriptedPeer(*BEFORE[phase], how) as peer:
        fault = fault_of(await converse(peer, PATIENT))
        assert (fault.kind, fault.phase, fault.uncertain) == ("closed", phase, phase == "dot")


@pytest.mark.parametrize("phase", BEFORE)
async def test_a_half_close_in_every_step_is_a_fault(phase: Phase) -> None:
    """No reply can come from a peer that has said its last, though it goes on listening: that is known at once."""
    async with ScriptedPeer(*BEFORE[phase], EOF) as peer:
        peer.go.set()
        async with asyncio.timeout(PATIENCE):
            result = await converse(peer, PATIENT)
        fault = fault_of(result)
        assert (fault.kind, fault.phase, fault.uncertain) == ("closed", phase, phase == "dot")
        if phase == "dot":
            assert isinstance(result, TransactionResult)
            assert {(o.kind, o.uncertain) for o in classify(result)} == {("deferred", True)}


async def test_a_final_reply_before_the_half_close_is_a_delivery() -> None:
    async with ScriptedPeer(*BEFORE["dot"], b"250 OK\r\n", EOF) as peer:
        peer.go.set()
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=PATIENT)
        result = await connection.send(MESSAGE)
        assert {(o.kind, o.uncertain) for o in classify(result)} == {("delivered", False)}
        connection.abort()


@pytest.mark.parametrize("phase", BEFORE)
@pytest.mark.parametrize("garbage", [b"SSH-2.0-OpenSSH\r\n", b"999 what\r\n", b"\x00" * 9000, b"250-a\r\n251 b\r\n"])
async def test_garbage_in_every_step_is_a_fault(phase: Phase, garbage: bytes) -> None:
    async with ScriptedPeer(*BEFORE[phase], garbage, HANG) as peer:
        fault = fault_of(await converse(peer, PATIENT))
        assert (fault.kind, fault.phase, fault.uncertain) == ("protocol", phase, phase == "dot")
        assert fault.text.isprintable()


@pytest.mark.parametrize("phase", ["mail", "rcpt", "dot"])
async def test_an_overlong_reply_is_a_fault(phase: Phase) -> None:
    async with ScriptedPeer(*BEFORE[phase], b"354 go on\r\n", HANG) as peer:
        fault = fault_of(await converse(peer, PATIENT))
        assert (fault.kind, fault.phase) == ("protocol", phase)


async def test_a_250_to_data_is_not_a_delivery() -> None:
    async with ScriptedPeer(*BEFORE["data"], b"250 OK\r\n", HANG) as peer:
        fault = fault_of(await converse(peer, PATIENT))
        assert (fault.kind, fault.phase, fault.uncertain) == ("protocol", "data", False)


@pytest.mark.parametrize("phase", ["mail", "rcpt", "data", "dot"])
async def test_421_ends_the_conversation_with_a_reply(phase: Phase) -> None:
    async with ScriptedPeer(*BEFORE[phase], b"421 4.3.2 going down\r\n", CLOSE) as peer:
        result = await converse(peer, PATIENT)
        assert isinstance(result, TransactionResult)
        assert result.fault is None
        assert [(o.kind, o.scope, o.reply_code) for o in classify(result)] == [("deferred", "destination", 421)] * 2


async def test_a_refused_helo_is_a_fault() -> None:
    script = (*GREETING, b"502 no\r\n", "HELO", b"550 5.7.1 not you\r\n", "QUIT")
    async with ScriptedPeer(*script) as peer:
        fault = fault_of(await converse(peer, PATIENT))
        assert (fault.kind, fault.phase) == ("refused", "helo")
        await until(lambda: peer.heard[-1] == b"QUIT")


async def test_a_4yz_to_ehlo_is_not_followed_by_helo() -> None:
    async with ScriptedPeer(*GREETING, b"451 later\r\n", "QUIT") as peer:
        assert fault_of(await converse(peer, PATIENT)).kind == "refused"
        assert b"HELO" not in b"".join(peer.heard)


async def test_the_envelope_is_sent_as_one_group_when_pipelining() -> None:
    """The peer says nothing before it has heard DATA: only a client that pipelines gets past it."""
    group = ("MAIL", "RCPT", "RCPT", "DATA", b"250 OK\r\n250 OK\r\n550 no\r\n354 go\r\n", CONTENT, b"250 OK\r\n")
    async with ScriptedPeer(*PIPELINING, *group, HANG) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=SHORT)
        result = await connection.send(MESSAGE)
        assert [reply and reply.code for reply in result.recipients] == [250, 550]
        assert connection.usable
        await connection.close()


@pytest.mark.parametrize("answer", [b"554 no valid recipients\r\n", b"250 OK\r\n"])
async def test_a_single_dot_is_sent_if_data_is_accepted_without_recipients(answer: bytes) -> None:
    refused = ("MAIL", "RCPT", "RCPT", "DATA", b"250 OK\r\n550 no\r\n450 later\r\n354 go\r\n")
    async with ScriptedPeer(*PIPELINING, *refused, ".", answer, "RSET", "MAIL", "RCPT", "DATA", HANG) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=SHORT)
        result = await connection.send(MESSAGE)
        assert [reply and reply.code for reply in result.recipients] == [550, 450]
        assert (result.final, result.fault) == (None, None)
        assert connection.usable
        await connection.send(Transaction("a@example.com", (BOB,), BODY))
        assert peer.heard[5:7] == [b".", b"RSET"]
        await connection.close()


@pytest.mark.parametrize("end", [HANG, CLOSE, RESET, b"421 bye\r\n"])
async def test_a_fault_after_all_recipients_were_refused_changes_no_outcome(end: bytes | str) -> None:
    refused = ("MAIL", "RCPT", "RCPT", "DATA", b"250 OK\r\n550 no\r\n550 no\r\n354 go\r\n", ".")
    async with ScriptedPeer(*PIPELINING, *refused, end) as peer:
        result = await converse(peer, SHORT)
        assert isinstance(result, TransactionResult)
        assert [o.kind for o in classify(result)] == ["failed", "failed"]
        assert (result.final, result.fault) == (None, None)


async def test_a_refused_mail_command_when_pipelining_refuses_all_recipients() -> None:
    group = ("MAIL", "RCPT", "RCPT", "DATA", b"550 5.7.1 go away\r\n503 first MAIL\r\n503 first MAIL\r\n503 no\r\n")
    async with ScriptedPeer(*PIPELINING, *group, "MAIL", HANG) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=SHORT)
        result = await connection.send(MESSAGE)
        assert result.mail is not None
        assert result.recipients == (result.mail, result.mail)
        assert connection.usable
        await connection.send(MESSAGE)  # no RSET: no transaction is open
        await connection.close()


async def test_a_refused_data_command_is_followed_by_rset() -> None:
    script = (*BEFORE["data"], b"451 4.3.0 no\r\n", "RSET", b"250 OK\r\n", *MAIL, HANG)
    async with ScriptedPeer(*script) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=SHORT)
        result = await connection.send(MESSAGE)
        assert [(o.kind, o.scope) for o in classify(result)] == [("deferred", "message")] * 2
        assert connection.usable
        assert fault_of(await connection.send(MESSAGE)).phase == "rcpt"


async def test_a_refused_rset_ends_the_connection() -> None:
    script = (*BEFORE["data"], b"451 4.3.0 no\r\n", "RSET", b"500 what\r\n", HANG)
    async with ScriptedPeer(*script) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=SHORT)
        await connection.send(MESSAGE)
        fault = fault_of(await connection.send(MESSAGE))
        assert (fault.kind, fault.phase) == ("protocol", "mail")
        assert not connection.usable


@pytest.mark.parametrize("then", [CLOSE, HANG])
async def test_a_421_on_an_idle_connection_makes_it_unusable(then: str) -> None:
    async with ScriptedPeer(*PLAIN, b"421 4.4.2 idle too long\r\n", then) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=SHORT)
        await until(lambda: not connection.usable)
        fault = fault_of(await connection.send(MESSAGE))
        assert fault.phase == "mail"
        assert fault.reply is not None
        assert fault.reply.code == 421
        await connection.close()


async def test_a_flood_of_replies_is_cut_off() -> None:
    async with ScriptedPeer(*PLAIN, b"250 OK\r\n" * 10_000, HANG) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=PATIENT)
        await until(lambda: not connection.usable)
        assert fault_of(await connection.send(MESSAGE)).kind == "protocol"
        assert len(connection._wire._replies) <= 1


async def test_control_characters_in_a_reply_are_escaped() -> None:
    async with ScriptedPeer(*BEFORE["mail"], b"550 \x1b]0;owned\x07 \xff\r\n", HANG) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="c.example", timeouts=SHORT)
        (outcome, _) = classify(await connection.send(MESSAGE))
        assert outcome.text == r"550 \x1b]0;owned\x07 \xff"
        await connection.close()


async def test_a_connection_that_takes_too_long_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConversationError) as caught:
            await SmtpConnection.open("127.0.0.1", port, hostname="c.example", timeouts=Timeouts(connect=0))
        assert (caught.value.fault.kind, caught.value.fault.phase) == ("timeout", "connect")
