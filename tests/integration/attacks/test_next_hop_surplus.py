"""test_next_hop_surplus — a surplus reply shifts no refusal to another recipient, and loses no mail

Owns: a reply without a command fails no recipient, with and without pipelining; accepted mail is not lost and not
    sent for ever.
See: RFC 2920 section 3.1; queued/smtp/client.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from queued.outcome.classify import classify
from queued.smtp.client import SmtpConnection
from queued.smtp.lmtp import LmtpConnection
from queued.smtp.transaction import Timeouts, Transaction
from tests.fixtures.peers.hostile_peer import hostile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from queued.smtp.transaction import TransactionResult

TWO = Transaction("alice@example.com", ("alive@example.net", "gone@example.net"), b"Subject: x\r\n\r\nx\r\n")
EXTRA = b"250 2.0.0 surplus\r\n"
SECOND = 2
LIMITS = Timeouts(mail=2, rcpt=2, data=2, dot=2, rset=1)


class Script:
    """Answers as an honest host that knows alive@ and not gone@, but for an extra reply after these verbs."""

    def __init__(self, extra: dict[bytes, bytes], *, pipelining: bool = True, before: bool = False) -> None:
        self._extra = extra
        self._pipelining = pipelining
        self._before = before

    async def __call__(self, line: bytes) -> bytes:
        """The reply to a line."""
        verb = line[:4].upper().strip()
        if verb == b"EHLO":
            return b"250-evil.test\r\n250 PIPELINING\r\n" if self._pipelining else b"250 evil.test\r\n"
        known = {b"DATA": b"354 go on\r\n", b".": b"250 2.0.0 taken\r\n", b"QUIT": b"221 2.0.0 bye\r\n"}
        honest = known.get(verb, b"250 2.0.0 ok\r\n")
        if b"gone@" in line:
            honest = b"550 5.1.1 no such user\r\n"
        extra = self._extra.get(verb, b"")
        return extra + honest if self._before else honest + extra


async def send(script: Script, transaction: Transaction = TWO) -> tuple[TransactionResult, bool]:
    async with hostile(script) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="us.test", timeouts=LIMITS)
        result = await connection.send(transaction)
        usable = connection.usable
        connection.abort()
        return result, usable


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("verb", [b"MAIL", b"RCPT", b"DATA"])
@pytest.mark.parametrize("extra", [EXTRA, b"550 5.1.1 no such user\r\n", b"354 go on\r\n"])
async def test_a_surplus_reply_fails_no_recipient(verb: bytes, extra: bytes, *, before: bool, pipelining: bool) -> None:
    result, usable = await send(Script({verb: extra}, pipelining=pipelining, before=before))
    assert [outcome.kind for outcome in classify(result)] == ["deferred", "deferred"]
    assert not usable


@pytest.mark.parametrize("order", [("alive", "gone"), ("gone", "alive"), ("gone", "alive", "gone")])
async def test_a_late_surplus_250_shifts_no_refusal(order: tuple[str, ...]) -> None:
    """DATA gets the refusal of a recipient, and the surplus reply would answer the next command."""
    transaction = TWO._replace(recipients=tuple(f"{name}{n}@example.net" for n, name in enumerate(order)))

    class Late(Script):
        async def __call__(self, line: bytes) -> bytes:
            said = await super().__call__(line)
            return b"550 5.1.1 no such user\r\n" if b"gone" in line else said

    result, usable = await send(Late({b"MAIL": EXTRA}), transaction)
    assert {outcome.kind for outcome in classify(result)} == {"deferred"}
    assert not usable


async def test_two_late_surplus_replies_shift_no_refusal() -> None:
    """The acceptance of alive@ is still due when we ask for proof: it proves nothing."""
    order = Transaction("alice@example.com", ("gone@example.net", "alive@example.net"), TWO.content)

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = Script({}, pipelining=False)
        writer.write(b"220 evil.test\r\n")
        while line := await reader.readline():
            for said in (EXTRA, EXTRA) * line.startswith(b"MAIL"):
                writer.write(said)
                await asyncio.sleep(0.02)
            writer.write(await script(line))
            await asyncio.sleep(0.02)
        writer.close()

    assert await kinds(peer, SmtpConnection, order) == ["deferred", "deferred"]


@pytest.mark.parametrize("pipelining", [True, False])
async def test_a_late_refusal_of_a_message_does_not_apply_to_the_next_one(*, pipelining: bool) -> None:
    """The host says 250 to the final dot, and 554 when the next MAIL is on its way."""
    order = Transaction("alice@example.com", ("alive@example.net", "gone@example.net"), TWO.content)

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script, content, mails = Script({}, pipelining=pipelining), False, 0
        writer.write(b"220 evil.test\r\n")
        while line := await reader.readline():
            if content and line != b".\r\n":
                continue
            mails += line.startswith(b"MAIL")
            said = await script(line)
            content = said.startswith(b"354")
            if line.startswith(b"MAIL") and mails == SECOND:
                writer.write(b"554 5.7.1 late\r\n")
                await asyncio.sleep(0.02)
            if mails == SECOND and line.startswith(b"DATA"):
                content, said = False, b"554 5.5.1 no valid recipients\r\n"
            writer.write(said)
        writer.close()

    first = order._replace(recipients=("alive@example.net",))
    assert set(await kinds(peer, SmtpConnection, first, order)) == {"deferred"}


@pytest.mark.parametrize("pipelining", [True, False])
async def test_a_late_refusal_of_a_recipient_does_not_apply_to_the_message(*, pipelining: bool) -> None:
    """The host repeats the 550 of gone@ after the final dot, and then accepts the message for alive@."""
    peer = repeating(b".", pipelining=pipelining)
    assert await kinds(peer, SmtpConnection, TWO) == ["deferred", "deferred"]


@pytest.mark.parametrize("pipelining", [True, False])
@pytest.mark.parametrize("before", [b"RCPT", b"."])
async def test_a_late_refusal_does_not_apply_to_the_only_recipient_of_the_next_message(
    before: bytes, *, pipelining: bool
) -> None:
    alone = TWO._replace(recipients=("alive@example.net",))
    peer = repeating(before, mail=SECOND, pipelining=pipelining)
    assert await kinds(peer, SmtpConnection, TWO, alone) == ["deferred"]


async def test_a_late_refusal_of_ehlo_does_not_apply_to_mail() -> None:
    """EHLO is refused twice, the second time while HELO was answered and MAIL is on its way."""
    alone = TWO._replace(recipients=("alive@example.net",))

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = Script({}, pipelining=False)
        refusal = b"502 5.5.1 EHLO not implemented\r\n"
        writer.write(b"220 evil.test\r\n")
        while line := await reader.readline():
            if line.startswith(b"EHLO"):
                writer.write(refusal)
                continue
            if line.startswith(b"MAIL"):
                writer.write(refusal)
                await asyncio.sleep(0.02)
            writer.write(await script(line))
        writer.close()

    assert await kinds(peer, SmtpConnection, alone) == ["deferred"]


async def test_a_refusal_of_a_message_is_final_if_the_reply_to_quit_proves_it() -> None:
    """With one recipient and with several; a host that hangs up instead is believed too."""

    class Refusing(Script):
        async def __call__(self, line: bytes) -> bytes:
            return b"554 5.7.1 spam\r\n" if line == b".\r\n" else await super().__call__(line)

    for transaction in TWO, TWO._replace(recipients=("alive@example.net",)):
        result, usable = await send(Refusing({}), transaction)
        assert {outcome.kind for outcome in classify(result)} == {"failed"}
        assert not usable


def repeating(
    before: bytes, *, mail: int = 1, pipelining: bool
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A peer that says gone@'s 550 once more, before its reply to this verb of the message with this number."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script, content, mails = Script({}, pipelining=pipelining), False, 0
        writer.write(b"220 evil.test\r\n")
        while line := await reader.readline():
            verb = line[:4].upper().strip()
            if content and verb != b".":
                continue
            content = verb == b"DATA"
            mails += verb == b"MAIL"
            if verb == before and mails == mail:
                writer.write(b"550 5.1.1 no such user\r\n")
                await asyncio.sleep(0.05)
            writer.write(await script(line))
        writer.close()

    return peer


async def test_a_surplus_lmtp_reply_shifts_no_reply_of_a_recipient() -> None:
    """It accepts the message first, and then sends a reply for each recipient as its delivery ends."""
    names = ("gone@example.net", "alive@example.net", "alive-too@example.net")

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        content = False
        writer.write(b"220 evil.test LMTP\r\n")
        while line := await reader.readline():
            if content and line != b".\r\n":
                continue
            content = line.startswith(b"DATA")
            if line == b".\r\n":
                for said in (EXTRA, b"550 5.1.1 no such user\r\n", b"250 2.1.5 has it\r\n", b"250 2.1.5 has it\r\n"):
                    writer.write(said)
                    await asyncio.sleep(0.02)
            else:
                writer.write(b"354 go on\r\n" if content else b"250 2.0.0 ok\r\n")
        writer.close()

    assert await kinds(peer, LmtpConnection, TWO._replace(recipients=names)) == ["deferred"] * 3


async def kinds(
    peer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    protocol: type[SmtpConnection],
    *transactions: Transaction,
) -> list[str]:
    """The outcomes of the last of these transactions on one connection."""
    server = await asyncio.start_server(peer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = await protocol.open("127.0.0.1", port, hostname="us.test", timeouts=LIMITS)
    try:
        for transaction in transactions:
            result = await connection.send(transaction)
    finally:
        connection.abort()
        server.close()
    return [outcome.kind for outcome in classify(result)]


async def test_without_a_surplus_reply_each_recipient_has_its_own() -> None:
    result, usable = await send(Script({}))
    assert [outcome.kind for outcome in classify(result)] == ["delivered", "failed"]
    assert usable
    both = TWO._replace(recipients=("gone@example.net", "also-gone@example.net"))
    result, usable = await send(Script({}), both)
    assert [outcome.kind for outcome in classify(result)] == ["failed", "failed"]
    assert usable


async def test_an_unsolicited_421_is_not_a_surplus_reply() -> None:
    result, _ = await send(Script({b".": b"421 4.3.2 going down\r\n"}))
    assert [outcome.kind for outcome in classify(result)] == ["delivered", "failed"]


async def test_a_repeated_250_after_the_dot_is_a_delivery() -> None:
    """To disbelieve it would send the message again with every try."""
    result, usable = await send(Script({b".": EXTRA}))
    assert [outcome.kind for outcome in classify(result)] == ["delivered", "failed"]
    assert not usable


async def test_a_250_followed_by_a_refusal_is_uncertain() -> None:
    result, _ = await send(Script({b".": b"550 5.7.1 rejected\r\n"}))
    assert [(outcome.kind, outcome.uncertain) for outcome in classify(result)] == [("deferred", True)] * 2
