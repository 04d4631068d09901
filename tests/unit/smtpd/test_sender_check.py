"""test_sender_check — a user with limited senders cannot name another as author or sender, in any encoding"""

from __future__ import annotations

import pytest

from smtpd.envelope.client import User
from smtpd.message.sender_check import originator_fault
from tests.fixtures.processor import least_seconds

ALICE = User("alice", senders=("alice@example.com", "*.lists.example"))


@pytest.mark.parametrize(
    "header",
    [
        b"From: alice@example.com",
        b"from : Alice <alice@EXAMPLE.com>",
        b"From: alice@example.com, news@a.lists.example",
        b"From:\r\n\t=?utf-8?q?M=C3=BCller=2C_A?=\r\n <alice@example.com>",
        b'From: "mallory@elsewhere.example" <alice@example.com>',
        b"X-From: mallory@elsewhere.example\r\nFrom: alice@example.com",
        b"From: alice@example.com\r\nSender: Alice <alice@example.com>\r\nX-Sender: mallory@elsewhere.example",
        b"From: alice@example.com\r\nResent-From: news@a.lists.example\r\nResent-Sender: alice@example.com",
        b"Resent-From: alice@example.com\r\nFrom: alice@example.com\r\nResent-From: news@a.lists.example",
        b"From: alice@example.com\r\nReply-To: mallory@elsewhere.example",
    ],
)
def test_the_users_own_addresses_pass(header: bytes) -> None:
    content = header + b"\r\n\r\nFrom: mallory@elsewhere.example\r\n"
    assert originator_fault(ALICE, content, adds_from=False) is None


@pytest.mark.parametrize("header", [b"", b"Subject: nobody wrote this", b"Sender: alice@example.com"])
def test_a_missing_from_passes_only_if_we_add_it(header: bytes) -> None:
    content = header + b"\r\n\r\nFrom: alice@example.com\r\n"
    assert originator_fault(ALICE, content, adds_from=True) is None
    assert originator_fault(ALICE, content, adds_from=False) == "missing"


@pytest.mark.parametrize(
    "field",
    [
        b"Sender: mallory@elsewhere.example",
        b"SENDER :mallory@elsewhere.example",
        b"Sender:\r\n mallory@elsewhere.example",
        b"Sender: alice@example.com, mallory@elsewhere.example",
        b"Sender: alice@example.com\r\nSender: mallory@elsewhere.example",
        b"Sender: mallory@elsewhere.example <alice@example.com>",
        b"Sender: ceo (a\\) <alice@example.com>) <mallory@elsewhere.example>",
        b"Sender: friends:;",
        b"Sender: ",
        b"Subject: x\rSender: alice@example.com",
        b"Resent-From: mallory@elsewhere.example",
        b"Resent-From: alice@example.com\r\nResent-From: mallory@elsewhere.example",
        b"Resent-From: alice@example.com\r\nresent-sender: mallory@elsewhere.example",
        b"Sender: alice@example.com\r\n" * 1000 + b"X: y",
        b"Sender: " + b"alice@example.com, " * 600 + b"alice@example.com",
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_another_sender_is_refused(field: bytes, *, first: bool) -> None:
    own = b"From: alice@example.com"
    content = (field + b"\r\n" + own if first else own + b"\r\n" + field) + b"\r\n\r\n"
    assert originator_fault(ALICE, content, adds_from=True) == "sender"
    assert originator_fault(User("bob"), content, adds_from=False) is None


@pytest.mark.parametrize(
    "header",
    [
        b"From: mallory@elsewhere.example",
        b"FROM:mallory@elsewhere.example",
        b"From : mallory@elsewhere.example",
        b"From:\r\n mallory@elsewhere.example",
        b"From: alice@example.com\r\nFrom: mallory@elsewhere.example",
        b"From: alice@example.com, mallory@elsewhere.example",
        b"From: alice@example.com <mallory@elsewhere.example>",
        b'From: "alice@example.com" <mallory@elsewhere.example>',
        b"From: friends: alice@example.com, mallory@elsewhere.example;",
        b"From: undisclosed:;",
        b"From: ",
        b"From: alice",
        b"From: <>",
        b"From: alice@example.com@elsewhere.example",
        b"Subject: x\nFrom: mallory@elsewhere.example",
        b"From: mallory@elsewhere.example\r\n\tFrom: alice@example.com",
        b"From: alice@example.com\r\nFrom: alice@example.com",
        b"From: alice@example.com\r, mallory@elsewhere.example",
        b"From: " + b"alice@example.com, " * 600 + b"alice@example.com",
        b"From: " + b"(" * 3000 + b")" * 3000 + b" alice@example.com",
        b"From: " + b"a:" * 3000 + b"alice@example.com",
        b" \r\nFrom: mallory@elsewhere.example",
    ],
)
@pytest.mark.parametrize("rest", [b"\r\n\r\nbody\r\n", b"\r\n", b""])
def test_another_from_is_refused(header: bytes, rest: bytes) -> None:
    assert originator_fault(ALICE, header + rest, adds_from=True) == "from"


def test_a_from_line_in_the_body_is_not_checked() -> None:
    assert originator_fault(ALICE, b"\r\nFrom: mallory@elsewhere.example\r\n\r\n", adds_from=True) is None


@pytest.mark.parametrize(
    "unit", [b"alice@example.com,", b"<", b'"\\', b"(", b"()", b"a:", b";", b"@", b"[", b"\r\n ", b"a "]
)
@pytest.mark.parametrize("times", [1, 60])
@pytest.mark.parametrize("name", [b"From", b"Sender"])
def test_any_field_is_parsed_in_bounded_time(unit: bytes, times: int, name: bytes) -> None:
    """Process time: others share this machine. Unbounded, it is seconds, or no end of recursion."""
    content = (name + b": " + unit * (96_000 // len(unit)) + b"alice@example.com\r\n") * times + b"\r\n"
    assert originator_fault(ALICE, content, adds_from=True) or times == 1
    assert least_seconds(lambda: originator_fault(ALICE, content, adds_from=True)) < 0.1


def test_many_small_fields_are_parsed_in_bounded_time() -> None:
    content = b"From: alice@example.com\r\n" + b"Sender: alice@example.com\r\n" * 70_000 + b"\r\n"
    assert originator_fault(ALICE, content, adds_from=True) == "sender"
    assert least_seconds(lambda: originator_fault(ALICE, content, adds_from=True)) < 0.1


def test_an_unrestricted_user_may_write_any_from() -> None:
    content = b"From: anybody@elsewhere.example\r\n\r\n"
    assert originator_fault(User("bob"), content, adds_from=False) is None


@pytest.mark.parametrize("rest", [b" \r\n", b"f\r\n", b"from", b"x"])
def test_content_without_an_end_of_its_header_is_not_searched_whole(rest: bytes) -> None:
    """Content of the largest size, whose header never ends, kept the event loop for a third of a second."""
    content = b"From: alice@example.com\r\n::\r\n" + rest * (10_000_000 // len(rest))
    assert originator_fault(ALICE, content, adds_from=True) == "from"
    assert least_seconds(lambda: originator_fault(ALICE, content, adds_from=True)) < 0.03
