"""test_smtp_reply — replies as hosts really send them, and lines that are none"""

from __future__ import annotations

import pytest

from shared.mail.smtp_reply import LINE_LIMIT, LINES_LIMIT, Reply, ReplyParser, printable


def only(received: bytes) -> Reply:
    parser = ReplyParser()
    (reply,) = parser.feed(received)
    assert parser.broken is None
    return reply


def test_a_line_with_an_enhanced_code_is_parsed() -> None:
    assert only(b"250 2.1.5 OK\r\n") == Reply(250, "2.1.5", ("OK",))


def test_a_repeated_enhanced_code_is_parsed_once() -> None:
    reply = only(b"550-5.7.1 Blocked by\r\n550 5.7.1 policy\r\n")
    assert reply == Reply(550, "5.7.1", ("Blocked by", "policy"))
    assert reply.text == "Blocked by policy"
    assert str(reply) == "550 5.7.1 Blocked by policy"


def test_a_code_alone_is_a_reply() -> None:
    assert only(b"250\r\n") == Reply(250, None, ("",))
    assert only(b"250 \r\n") == Reply(250, None, ("",))
    assert only(b"250 2.0.0\r\n") == Reply(250, "2.0.0", ("",))


def test_an_enhanced_code_of_another_class_is_only_text() -> None:
    assert only(b"450 5.1.1 odd\r\n") == Reply(450, None, ("5.1.1 odd",))


def test_ehlo_keeps_its_lines() -> None:
    assert only(b"250-host greets you\r\n250-SIZE 100\r\n250 PIPELINING\r\n").lines == (
        "host greets you",
        "SIZE 100",
        "PIPELINING",
    )


def test_bare_line_feeds_end_lines_too() -> None:
    assert only(b"250-a\n250 b\n") == Reply(250, None, ("a", "b"))


@pytest.mark.parametrize(
    ("code", "positive", "intermediate", "transient", "permanent"),
    [
        (220, True, False, False, False),
        (354, False, True, False, False),
        (451, False, False, True, False),
        (554, False, False, False, True),
    ],
)
def test_the_first_digit_gives_the_class(
    *, code: int, positive: bool, intermediate: bool, transient: bool, permanent: bool
) -> None:
    reply = Reply.make(code, None, "")
    assert reply.is_positive is positive
    assert reply.is_intermediate is intermediate
    assert reply.is_transient is transient
    assert reply.is_permanent is permanent


@pytest.mark.parametrize(
    "line",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"150 mark\r\n",
        b"650 ?\r\n",
        b"25 short\r\n",
        b"250OK\r\n",
        b"\r\n",
        b"2\xb20 x\r\n",
    ],
)
def test_an_invalid_line_breaks_the_parser(line: bytes) -> None:
    parser = ReplyParser()
    assert parser.feed(b"250 before\r\n" + line + b"250 after\r\n") == [Reply(250, None, ("before",))]
    assert parser.broken is not None
    assert "not an SMTP reply" in parser.broken
    assert parser.feed(b"250 later\r\n") == []


def test_two_codes_in_one_reply_break_the_parser() -> None:
    parser = ReplyParser()
    assert parser.feed(b"250-yes\r\n550 no\r\n") == []
    assert parser.broken == "one reply with two codes, 250 and 550"


def test_a_line_has_a_limit_even_before_it_ends() -> None:
    parser = ReplyParser()
    assert parser.feed(b"250 " + b"x" * (LINE_LIMIT - 5)) == []
    assert parser.broken is None
    assert parser.feed(b"x") == []
    assert parser.broken is not None


def test_a_reply_has_a_limit_of_lines() -> None:
    parser = ReplyParser()
    assert len(parser.feed(b"250-x\r\n" * (LINES_LIMIT - 1) + b"250 x\r\n")) == 1
    assert parser.feed(b"250-x\r\n" * LINES_LIMIT + b"250 x\r\n") == []
    assert parser.broken is not None


def test_text_is_fit_for_a_terminal() -> None:
    assert only(b"250 \x1b[31mred\x07\tend\r\n").text == r"\x1b[31mred\x07\tend"
    assert only(b"250 gr\xc3\xbc\xc3\x9fe\r\n").text == "grüße"
    assert only(b"250 gr\xfc\xdfe\r\n").text == r"gr\xfc\xdfe"
    assert printable("a\u202eb\u2028c".encode()) == r"a\u202eb\u2028c"
