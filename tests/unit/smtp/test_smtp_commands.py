"""test_smtp_commands — which parameters MAIL carries, and how an EHLO reply is read"""

from __future__ import annotations

import pytest

from queued.smtp.commands import mail_command, rcpt_command, read_extensions, session_limit, size_limit, within_limits
from queued.smtp.transaction import Transaction
from shared.mail.message import RecipientDsn
from shared.mail.smtp_reply import Reply

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
def test_the_mail_command_has_its_parameters(transaction: Transaction, offered: dict[str, str], expected: str) -> None:
    assert mail_command(transaction, offered) == f"MAIL FROM:{expected}\r\n".encode()


@pytest.mark.parametrize(
    ("announced", "positions"),
    [
        ("", (0, 2, 3, 4)),
        ("RCPTMAX=3", (0, 2, 3)),
        ("RCPTDOMAINMAX=1", (0, 3)),
        ("RCPTDOMAINMAX=2", (0, 2, 3)),
        ("RCPTDOMAINMAX=2 RCPTMAX=2", (0, 2)),
        ("RCPTDOMAINMAX=0", (0, 2, 3, 4)),
    ],
)
def test_one_transaction_has_the_recipients_that_the_limits_allow(announced: str, positions: tuple[int, ...]) -> None:
    recipients = ("a@one.example", "b@no.example", "c@two.example", "d@ONE.example", "e@three.example")
    assert within_limits(recipients, [0, 2, 3, 4], {"LIMITS": announced}) == positions


def test_the_rcpt_command_has_its_address() -> None:
    assert rcpt_command(Transaction("a@b.c", ('"a b"@c.d',), ASCII), 0, ALL) == b'RCPT TO:<"a b"@c.d>\r\n'


ASKED = Transaction(
    "a@b.c",
    ("d@e.f", "g@h.i"),
    ASCII,
    ret="HDRS",
    envid="QQ 3+4=7",
    dsn=(
        RecipientDsn(frozenset({"SUCCESS", "FAILURE"}), ("rfc822", "old+d@e.f")),
        RecipientDsn(None, ("utf-8", "ü@e.f")),
    ),
    priority=-3,
    requiretls=True,
)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ({"DSN": ""}, " RET=HDRS ENVID=QQ+203+2B4+3D7"),
        ({"MT-PRIORITY": "MIXER"}, " MT-PRIORITY=-3"),
        ({"REQUIRETLS": ""}, " REQUIRETLS"),
        ({}, ""),
    ],
)
def test_requested_extensions_are_passed_to_hosts_that_offer_them(offered: dict[str, str], expected: str) -> None:
    assert mail_command(ASKED, offered) == f"MAIL FROM:<a@b.c>{expected}\r\n".encode()


def test_notify_and_orcpt_are_passed_for_each_recipient() -> None:
    assert rcpt_command(ASKED, 0, {"DSN": ""}) == (
        b"RCPT TO:<d@e.f> NOTIFY=FAILURE,SUCCESS ORCPT=rfc822;old+2Bd@e.f\r\n"
    )
    assert rcpt_command(ASKED, 1, {"DSN": ""}) == rb"RCPT TO:<g@h.i> ORCPT=utf-8;\x{FC}@e.f" + b"\r\n"
    assert rcpt_command(ASKED, 0, {}) == b"RCPT TO:<d@e.f>\r\n"


def test_extensions_are_keywords_in_capitals() -> None:
    reply = Reply(250, None, ("SIZE is my name", "Size 1000", "AUTH PLAIN LOGIN", "pipelining", ""))
    assert read_extensions(reply) == {"SIZE": "1000", "AUTH": "PLAIN LOGIN", "PIPELINING": ""}


@pytest.mark.parametrize(
    ("parameter", "limit"),
    [("1000", 1000), ("0", None), ("", None), ("-5", None), ("1e6", None), ("9" * 21, None), ("²", None)],
)
def test_the_size_limit_of_ehlo_is_parsed(parameter: str, limit: int | None) -> None:
    assert size_limit({"SIZE": parameter}) == limit
    assert size_limit({}) is None


@pytest.mark.parametrize(
    ("announced", "limit"),
    [
        ("MAILMAX=7", 7),
        ("RCPTMAX=10 mailmax=000007 OTHER=x", 7),
        ("MAILMAX=0", None),
        ("MAILMAX=1000000", None),
        ("MAILMAX=-1", None),
        ("MAILMAX=٣", None),
        ("MAILMAX", None),
        ("", None),
    ],
)
def test_an_announced_limit_is_parsed(announced: str, limit: int | None) -> None:
    assert session_limit("MAILMAX", {"LIMITS": announced}) == limit
    assert session_limit("MAILMAX", {}) is None
