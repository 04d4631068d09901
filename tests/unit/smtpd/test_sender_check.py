"""test_sender_check — a user with limited senders cannot write another in From, in any encoding"""

from __future__ import annotations

import pytest

from smtpd.envelope.client import User
from smtpd.message.sender_check import from_is_own
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
        b"Subject: nobody wrote this",
        b"X-From: mallory@elsewhere.example\r\nFrom: alice@example.com",
        b"",
    ],
)
def test_the_users_own_from_passes(header: bytes) -> None:
    assert from_is_own(ALICE, header + b"\r\n\r\nFrom: mallory@elsewhere.example\r\n")


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
    assert not from_is_own(ALICE, header + rest)


def test_a_from_line_in_the_body_is_not_checked() -> None:
    assert from_is_own(ALICE, b"\r\nFrom: mallory@elsewhere.example\r\n\r\n")


@pytest.mark.parametrize(
    "unit", [b"alice@example.com,", b"<", b'"\\', b"(", b"()", b"a:", b";", b"@", b"[", b"\r\n ", b"a "]
)
@pytest.mark.parametrize("times", [1, 60])
def test_any_from_is_parsed_in_bounded_time(unit: bytes, times: int) -> None:
    """Process time: others share this machine. Unbounded, it is seconds, or no end of recursion."""
    content = (b"From: " + unit * (96_000 // len(unit)) + b"alice@example.com\r\n") * times + b"\r\n"
    assert not from_is_own(ALICE, content) or times == 1
    assert least_seconds(lambda: from_is_own(ALICE, content)) < 0.1


def test_an_unrestricted_user_may_write_any_from() -> None:
    assert from_is_own(User("bob"), b"From: anybody@elsewhere.example\r\n\r\n")


@pytest.mark.parametrize("rest", [b" \r\n", b"f\r\n", b"from", b"x"])
def test_content_without_an_end_of_its_header_is_not_searched_whole(rest: bytes) -> None:
    """Content of the largest size, whose header never ends, kept the event loop for a third of a second."""
    content = b"From: alice@example.com\r\n::\r\n" + rest * (10_000_000 // len(rest))
    assert not from_is_own(ALICE, content)
    assert least_seconds(lambda: from_is_own(ALICE, content)) < 0.03
