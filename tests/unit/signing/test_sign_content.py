"""test_sign_content — the author of a message, and the fields that a signature covers"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

from queued.signing import sign_content
from queued.signing.sign_content import ascii_domain, author_domain, body_digest, covered, header_end


@pytest.mark.parametrize(
    ("value", "domain"),
    [
        ("ann@origin.example", "origin.example"),
        ("Ann <ann@Origin.Example>", "origin.example"),
        ("Ann\r\n\t<ann@origin.example>", "origin.example"),
        ('"fake@evil.example, <x@evil.example>" <ann@origin.example>', "origin.example"),
        ("fake@evil.example <ann@origin.example>", "origin.example"),
        ("ann@origin.example (at fake@evil.example)", "origin.example"),
        ("ann@origin.example, bob@second.example", "origin.example"),
        ('"a b"@origin.example', "origin.example"),
        ("ann@bücher.example", "xn--bcher-kva.example"),
        ("ann@origin.example.", "origin.example"),
        ("ann@[192.0.2.1]", None),
        ("Ann", None),
        ("", None),
        ("ann@" + "x" * 20_000, None),
    ],
)
def test_the_first_author_s_domain_is_found(value: str, domain: str | None) -> None:
    assert author_domain(f"To: x@y.example\r\nFrom: {value}\r\nX-From: a@b.example\r\n".encode()) == domain


def test_a_missing_or_repeated_from_has_no_author_domain() -> None:
    assert author_domain(b"To: x@y.example\r\n") is None
    assert author_domain(b"From: a@origin.example\r\nfrom: b@evil.example\r\n") is None


@pytest.mark.parametrize("name", ["", ".", "a..b", "x" * 70 + ".example", "a b", "[IPv6:::1]", "a@b"])
def test_an_invalid_dns_name_is_not_a_signing_domain(name: str) -> None:
    assert ascii_domain(name) is None


def test_each_signed_field_is_listed_once_more_than_it_occurs() -> None:
    names = covered([b"from", b"subject", b"subject", b"received", b"list-id", b"x-mailer"])
    assert names.count(b"from") == 2
    assert names.count(b"subject") == 3
    assert names.count(b"cc") == 1
    assert names.count(b"list-id") == 1
    assert b"received" not in names
    assert b"x-mailer" not in names


@pytest.mark.parametrize(
    ("content", "end"),
    [(b"A: b\r\n\r\nbody", 6), (b"A: b\r\n", 6), (b"A: b", 4), (b"\r\nbody\r\n\r\n", 0), (b"", 0)],
)
def test_the_header_ends_before_the_empty_line(content: bytes, end: int) -> None:
    assert header_end(content) == end


@pytest.mark.parametrize("line", [b"x  ", b"x ", b"\t y", b"\tz\t", b"a  b \t", b"text"])
def test_a_line_without_end_is_digested_in_pieces(monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    """20 MB of such a line kept the event loop for a second: no other thread runs during a regular expression."""
    pieces: list[int] = []

    class Counted:
        """The pattern, noting how much each call is given."""

        def sub(self, by: bytes, text: bytes) -> Any:
            pieces.append(len(text))
            return re.sub(rb"[ \t]+", by, text)

    monkeypatch.setattr(sign_content, "_SPACES", Counted())
    monkeypatch.setattr(sign_content, "_PIECE", 1000)
    body = line * 10_000 + b"\r\n\r\nend  \r\n\r\n"
    relaxed = re.sub(rb"[ \t]+", b" ", body).replace(b" \r\n", b"\r\n").rstrip(b"\r\n") + b"\r\n"
    assert body_digest(b"A: b\r\n\r\n" + body, 6) == hashlib.sha256(relaxed).digest()
    assert max(pieces, default=0) <= 2 * 1000 + 100
