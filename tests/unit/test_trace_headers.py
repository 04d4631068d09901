"""test_trace_headers — our Received header is one folded field whatever a client calls itself, and hops are counted

Owns: examples for smtpd/trace_headers.py.
See: RFC 5321 section 4.4, RFC 5322 sections 2.1.1 and 2.2.3, RFC 3848, RFC 6531 section 4.3.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import SMTP
from email.utils import parsedate_to_datetime
from uuid import UUID

import pytest

from smtpd.trace_headers import hops, received, with_keyword

ID = UUID("0190a5b6-7c8d-7e9f-8a0b-1c2d3e4f5a6b")
NOW = datetime(2026, 11, 21, 7, 0, 5, tzinfo=UTC)


def header(**changed: str) -> bytes:
    words = {"helo": "client.example", "client": "192.0.2.1", "hostname": "mx.example", "protocol": "ESMTPS", **changed}
    return received(**words, message_id=ID, now=NOW)


def test_the_header_as_it_stands() -> None:
    assert header() == (
        b"Received: from client.example ([192.0.2.1])\r\n"
        b"\tby mx.example with ESMTPS\r\n"
        b"\tid 0190a5b6-7c8d-7e9f-8a0b-1c2d3e4f5a6b; Sat, 21 Nov 2026 07:00:05 +0000\r\n"
    )


def test_an_ipv6_client_is_tagged() -> None:
    assert b" ([IPv6:2001:db8::1])\r\n" in header(client="2001:db8::1")


def test_others_read_it_as_one_field_with_its_date() -> None:
    message = message_from_bytes(header() + b"Subject: x\r\n\r\nbody\r\n", policy=SMTP)
    assert message.keys() == ["Received", "Subject"]
    assert parsedate_to_datetime(str(message["Received"]).rpartition(";")[2].strip()) == NOW


@pytest.mark.parametrize(
    "helo",
    [
        "evil\r\nBcc: everybody@example.com",
        "evil\r\n\r\n<script>",
        "evil\nX: y",
        "evil\0",
        "evil) (comment; Mon, 1 Jan 2001",
        "ev\u2028il\ud800",
        "x" * 10_000,
        "",
        '"quoted string"',
        "münchen.example",
    ],
    ids=["header", "body", "bare", "nul", "syntax", "unicode", "long", "empty", "quotes", "u-label"],
)
@pytest.mark.parametrize("word", ["helo", "client", "hostname"])
def test_no_word_of_a_client_adds_a_line(helo: str, word: str) -> None:
    made = header(**{word: helo})
    lines = made.split(b"\r\n")
    assert len(lines) == 4
    assert [line[:1] for line in lines] == [b"R", b"\t", b"\t", b""]
    assert b"\r" not in made.replace(b"\r\n", b"")
    assert b"\n" not in made.replace(b"\r\n", b"")
    assert all(len(line) <= 998 for line in lines)
    assert made.isascii()
    assert message_from_bytes(made + b"\r\n", policy=SMTP).keys() == ["Received"]


def test_a_client_that_says_nothing_is_unknown() -> None:
    assert header(helo="").startswith(b"Received: from unknown ([")


@pytest.mark.parametrize(
    ("extended", "tls", "authenticated", "smtputf8", "keyword"),
    [
        (False, False, False, False, "SMTP"),
        (True, False, False, False, "ESMTP"),
        (True, True, False, False, "ESMTPS"),
        (True, False, True, False, "ESMTPA"),
        (True, True, True, False, "ESMTPSA"),
        (True, False, False, True, "UTF8SMTP"),
        (True, True, False, True, "UTF8SMTPS"),
        (True, False, True, True, "UTF8SMTPA"),
        (True, True, True, True, "UTF8SMTPSA"),
    ],
)
def test_keywords(*, extended: bool, tls: bool, authenticated: bool, smtputf8: bool, keyword: str) -> None:
    assert with_keyword(extended=extended, tls=tls, authenticated=authenticated, smtputf8=smtputf8) == keyword


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"", 0),
        (b"Subject: x\r\n\r\n", 0),
        (b"Received: x\r\n", 1),
        (b"Received: x\r\n\tby y\r\nRECEIVED: z\r\nreceived:w\r\n\r\nbody\r\n", 3),
        (b"Subject: x\r\n\r\nReceived: in the body\r\n", 0),
        (b"Received: x\r\n\r\nReceived: y\r\n\r\nReceived: z\r\n", 1),
        (b"X-Received: x\r\n Received: folded\r\nReceived-SPF: pass\r\n\r\n", 0),
        (b"\r\nReceived: the header is empty, this is the body\r\n\r\nmore\r\n", 0),
    ],
)
def test_hops_are_the_received_fields_of_the_header(content: bytes, count: int) -> None:
    assert hops(content) == count


def test_our_own_header_is_a_hop() -> None:
    assert hops(header() * 7 + b"\r\n") == 7
