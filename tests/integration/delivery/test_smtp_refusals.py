"""test_smtp_refusals — content that the client refuses itself instead of the host, and content that it changes"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queued.outcome.classify import classify
from scripts.sink.records import EXTENSIONS
from scripts.sink.server import Sink
from tests.fixtures.daemons.smtp_send import BOB, codes, connect, send_once, to

if TYPE_CHECKING:
    from queued.smtp.transaction import Transaction


@pytest.mark.parametrize(
    "address",
    [
        "a@example.com>\r\nRSET",
        "a\rb@example.com",
        "a\nb@example.com",
        "a\x00b@example.com",
        "a\x7fb@example.com",
        "a@example.com> SIZE=1",
        "a b@example.com",
        "<a@example.com>",
        '"unclosed@example.com',
        "grün@example.com",  # without SMTPUTF8 declared
    ],
)
async def test_invalid_addresses_are_refused_before_sending(address: str) -> None:
    async with Sink() as sink:
        connection = await connect(sink)
        result = await connection.send(to(address, BOB))
        assert codes(result) == [553, 250]
        assert sink.received[0].recipients == (BOB,)
        spoken = dict(sink.commands)
        result = await connection.send(to(BOB, sender=address))
        assert codes(result) == [501]
        assert result.recipients[0] is not None
        assert result.recipients[0].enhanced == "5.1.7"
        assert [o.kind for o in classify(result)] == ["failed"]
        assert codes(await connection.send(to(address, ""))) == [553, 553]
        assert sink.commands == spoken  # not a word to the host
        assert connection.usable
        await connection.close()
        assert sink.violations == []


UTF8 = "Subject: grün\r\n\r\ntext\r\n".encode()


async def test_smtputf8_is_used_if_offered() -> None:
    async with Sink() as sink:
        result = await send_once(sink, to("grün@example.com", sender="ü@example.com", content=UTF8, smtputf8=True))
        assert codes(result) == [250]
        assert (sink.received[0].sender, sink.received[0].recipients) == ("ü@example.com", ("grün@example.com",))
        assert sink.violations == []


@pytest.mark.parametrize(
    ("transaction", "code"),
    [
        (to("grün@example.com", BOB, smtputf8=True), 550),
        (to(BOB, BOB, sender="ü@example.com", smtputf8=True), 550),
        (to(BOB, BOB, content=UTF8, smtputf8=True), 550),
        (to(BOB, BOB, content=b"Subject: x\r\n\r\n" + UTF8, smtputf8=True), 250),  # declared, not needed
        (to(BOB, BOB, content=UTF8), 250),  # raw 8-bit header of old: as it came
    ],
)
async def test_international_mail_fails_if_smtputf8_is_not_offered(transaction: Transaction, code: int) -> None:
    async with Sink(extensions=EXTENSIONS - {"SMTPUTF8"}) as sink:
        result = await send_once(sink, transaction)
        assert codes(result) == [code, code]
        if code == 550:
            assert result.mail is not None
            assert result.mail.enhanced == "5.6.7"
            assert "MAIL" not in sink.commands
        assert sink.violations == []


async def test_a_message_over_the_size_limit_of_the_host_fails() -> None:
    async with Sink(size_limit=100) as sink:
        connection = await connect(sink)
        assert codes(await connection.send(to(BOB, content=b"x" * 98 + b"\r\n"))) == [250]
        result = await connection.send(to(BOB, content=b"x" * 99 + b"\r\n"))
        assert codes(result) == [552]
        assert [o.kind for o in classify(result)] == ["failed"]
        assert sink.commands["MAIL"] == 1
        await connection.close()


async def test_stray_line_ends_and_nul_become_spaces() -> None:
    async with Sink(keep_content=True) as sink:
        await send_once(sink, to(BOB, content=b"a\r.\rb\n.\nc\r\n\x00.\r\nd\n.\r\ne\r"))
        assert sink.received[0].content == b"a . b . c\r\n .\r\nd .\r\ne \r\n"
        assert sink.violations == []
