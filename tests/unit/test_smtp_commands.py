"""test_smtp_commands — which parameters MAIL carries, and how an EHLO reply is read"""

from __future__ import annotations

import pytest

from queued.smtp_commands import mail_command, rcpt_command, read_extensions, size_limit
from queued.transaction import Transaction
from shared.smtp_reply import Reply

ALL = {"SIZE": "", "8BITMIME": "", "SMTPUTF8": "", "PIPELINING": ""}
ASCII = b"Subject: x\r\n\r\nx\r\n"
EIGHT_BIT = b"Subject: x\r\n\r\n\xfc\r\n"


@pytest.mark.parametrize(
    ("transaction", "offered", "expected"),
    [
        (Transaction("a@b.c", (), ASCII), {}, "<a@b.c>"),
        (Transaction("", (), ASCII), {}, "<>"),
        (Transaction("a@b.c", (), ASCII), ALL, "<a@b.c> SIZE=17"),
        (Transaction("a@b.c", (), b"no end"), ALL, "<a@b.c> SIZE=8"),
        (Transaction("a@b.c", (), b"..\r\n"), ALL, "<a@b.c> SIZE=4"),  # doubled dots do not count
        (Transaction("a@b.c", (), EIGHT_BIT), ALL, "<a@b.c> SIZE=17 BODY=8BITMIME"),
        (Transaction("a@b.c", (), EIGHT_BIT), {}, "<a@b.c>"),
        (Transaction("a@b.c", (), ASCII, body8bit=True), ALL, "<a@b.c> SIZE=17 BODY=8BITMIME"),
        (Transaction("a@b.c", (), ASCII, smtputf8=True), ALL, "<a@b.c> SIZE=17 SMTPUTF8"),
        (Transaction("ü@b.c", (), EIGHT_BIT, smtputf8=True), ALL, "<ü@b.c> SIZE=17 BODY=8BITMIME SMTPUTF8"),
        (Transaction("a@b.c", (), ASCII, smtputf8=True), {}, "<a@b.c>"),
    ],
)
def test_mail(transaction: Transaction, offered: dict[str, str], expected: str) -> None:
    assert mail_command(transaction, offered) == f"MAIL FROM:{expected}\r\n".encode()


def test_rcpt() -> None:
    assert rcpt_command('"a b"@c.d') == b'RCPT TO:<"a b"@c.d>\r\n'


def test_extensions_are_keywords_in_capitals() -> None:
    reply = Reply(250, None, ("SIZE is my name", "Size 1000", "AUTH PLAIN LOGIN", "pipelining", ""))
    assert read_extensions(reply) == {"SIZE": "1000", "AUTH": "PLAIN LOGIN", "PIPELINING": ""}


@pytest.mark.parametrize(
    ("parameter", "limit"),
    [("1000", 1000), ("0", None), ("", None), ("-5", None), ("1e6", None), ("9" * 21, None), ("²", None)],
)
def test_size(parameter: str, limit: int | None) -> None:
    assert size_limit({"SIZE": parameter}) == limit
    assert size_limit({}) is None
