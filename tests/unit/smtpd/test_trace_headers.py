"""test_trace_headers — our Received header is one folded field for any client name, and added text is safe

Owns: examples for smtpd/message/trace_headers.py.
See: RFC 5321 section 4.4, RFC 5322 sections 2.1.1 and 2.2.3, RFC 3848, RFC 6531 section 4.3, RFC 6409 section 8.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import SMTP
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import UUID

import pytest

from shared.mail.message import Address
from smtpd.message.trace_headers import Seen, are_fields, missing, received, with_keyword

ID = UUID("0190a5b6-7c8d-7e9f-8a0b-1c2d3e4f5a6b")
NOW = datetime(2026, 11, 21, 7, 0, 5, tzinfo=UTC)


def header(**changed: Any) -> bytes:
    seen = Seen(**{"helo": "client.example", "client": "192.0.2.1", "hostname": "mx.example", **changed})
    return received(seen, ID, NOW)


def test_the_minimal_received_header() -> None:
    assert header() == (
        b"Received: from client.example ([192.0.2.1])\r\n"
        b"\tby mx.example with ESMTP\r\n"
        b"\tid 0190a5b6-7c8d-7e9f-8a0b-1c2d3e4f5a6b; Sat, 21 Nov 2026 07:00:05 +0000\r\n"
    )


def test_the_received_header_with_every_clause() -> None:
    made = header(
        name="host.example",
        tls=("TLSv1.3", "TLS_AES_256_GCM_SHA384", 256),
        certificate="CN=app",
        authenticated=True,
        user="alice@example.com",
        recipient=Address("bob", "example.com"),
        priority=-3,
    )
    assert made == (
        b"Received: from client.example (host.example [192.0.2.1])\r\n"
        b"\t(using TLSv1.3 with cipher TLS_AES_256_GCM_SHA384 (256 bits))\r\n"
        b"\t(client certificate CN?app verified OK)\r\n"
        b"\t(authenticated as alice@example.com)\r\n"
        b"\tby mx.example with ESMTPSA\r\n"
        b"\tid 0190a5b6-7c8d-7e9f-8a0b-1c2d3e4f5a6b\r\n"
        b"\tfor <bob@example.com> PRIORITY -3; Sat, 21 Nov 2026 07:00:05 +0000\r\n"
    )


def test_an_international_recipient_is_named_only_with_smtputf8() -> None:
    zoe = Address("zoë", "größe.example")
    assert "\tfor <zoë@größe.example>;".encode() in header(recipient=zoe, smtputf8=True)
    assert b"for <" not in header(recipient=zoe)


def test_an_ipv6_client_is_tagged() -> None:
    assert b" ([IPv6:2001:db8::1])\r\n" in header(client="2001:db8::1")


def test_the_standard_library_parses_the_header_as_one_field_with_a_date() -> None:
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
@pytest.mark.parametrize("word", ["helo", "client", "hostname", "name", "user", "certificate"])
def test_the_text_of_a_client_adds_no_line(helo: str, word: str) -> None:
    made = header(tls=("TLSv1.3", helo, 256), **{word: helo})
    lines = made.split(b"\r\n")
    assert {line[:1] for line in lines[1:-1]} == {b"\t"}
    assert lines[0].startswith(b"Received: ")
    assert lines[-1] == b""
    assert b"\r" not in made.replace(b"\r\n", b"")
    assert b"\n" not in made.replace(b"\r\n", b"")
    assert all(len(line) <= 998 for line in lines)
    assert made.isascii()
    assert message_from_bytes(made + b"\r\n", policy=SMTP).keys() == ["Received"]


def test_a_client_without_helo_is_unknown() -> None:
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
def test_the_with_keyword_follows_extension_tls_and_login(
    *, extended: bool, tls: bool, authenticated: bool, smtputf8: bool, keyword: str
) -> None:
    assert with_keyword(extended=extended, tls=tls, authenticated=authenticated, smtputf8=smtputf8) == keyword


SENDER = Address("alice", "sender.example")


def add(*names: bytes, sender: Address | None = SENDER, smtputf8: bool = False) -> list[bytes]:
    made = missing(names, sender, ID, "mx.example", NOW, smtputf8=smtputf8)
    return made.split(b"\r\n")[:-1]


def test_missing_submission_fields_are_added() -> None:
    assert add() == [
        b"Date: Sat, 21 Nov 2026 07:00:05 +0000",
        b"Message-ID: <0190a5b6-7c8d-7e9f-8a0b-1c2d3e4f5a6b@mx.example>",
        b"From: <alice@sender.example>",
    ]
    assert add(b"date", b"from") == [b"Message-ID: <0190a5b6-7c8d-7e9f-8a0b-1c2d3e4f5a6b@mx.example>"]
    assert add(b"date", b"from", b"message-id") == []


def test_no_author_is_invented_for_the_null_sender() -> None:
    assert add(b"date", b"message-id", sender=None) == []
    zoe = Address("zoë", "sender.example")
    assert add(b"date", b"message-id", sender=zoe) == []
    assert add(b"date", b"message-id", sender=zoe, smtputf8=True) == ["From: <zoë@sender.example>".encode()]


@pytest.mark.parametrize("localpart", ['"a> b"', '"<a"', '"a b"'])
def test_an_address_that_would_end_the_path_is_omitted(localpart: str) -> None:
    assert add(b"date", b"message-id", sender=Address(localpart, "sender.example")) == []


@pytest.mark.parametrize(
    ("lines", "good"),
    [
        (b"", True),
        (b"X-Spam: yes\r\nX-Score:\r\n\tfolded\r\n", True),
        (b"X-Spam: yes", False),
        (b"X-Spam: yes\r\n\r\n", False),
        (b"X-Spam: yes\nBcc: x\r\n", False),
        (b"X Spam: yes\r\n", False),
        (b" folded first\r\n", False),
        ("X-Spam: é\r\n".encode(), False),
        (b"X-Spam: \0\r\n", False),
    ],
)
def test_only_complete_fields_are_prepended(lines: bytes, *, good: bool) -> None:
    assert are_fields(lines) is good
