"""test_from_header — the From field is parsed in exactly one way, or refused"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queued.signing.sign_content import author_domain
from queued.smtp.content import without_strays
from shared.mail.from_header import authors
from smtpd.envelope.client import User
from smtpd.message.sender_check import originator_fault

MINE = User("me", senders=("a.example",))


def read(value: str) -> list[str] | None:
    found = authors(f"To: x@y.example\r\nFrom: {value}\r\nSubject: x\r\n\r\nFrom: body@b.example\r\n".encode())
    return None if found is None else [str(author.address) for author in found]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("me@a.example", ["me@a.example"]),
        (r'"x" (a\) <ceo@b.example>) <me@a.example>', ["me@a.example"]),
        (r'"x\" <ceo@b.example>, " <me@a.example>', ["me@a.example"]),
        ("(a(b)c) Me (<ceo@b.example>) <me@a.example> (after)", ["me@a.example"]),
        ("Me <me@a.example>, You <you@b.example>", ["me@a.example", "you@b.example"]),
        ("We: me@a.example, you@b.example;, it@c.example", ["me@a.example", "you@b.example", "it@c.example"]),
        ("<@relay.example,@other.example:me@a.example>", ["me@a.example"]),
        ('"ceo@b.example"@a.example', ['"ceo@b.example"@a.example']),
        ("me (c) @ (d) a . example", ["me@a.example"]),
        (",, me@a.example ,", ["me@a.example"]),
        ("Me\r\n\t<me@a.example>", ["me@a.example"]),
        ("me@[192.0.2.1]", ["me@[192.0.2.1]"]),
        ("me@FAẞ.de", ["me@xn--fa-hia.de"]),
        ("info@a.example <me@a.example>", ["me@a.example"]),
    ],
)
def test_mailboxes_of_from_are_parsed(value: str, expected: list[str]) -> None:
    assert read(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Me",
        "friends:;",
        "a: b: me@a.example;",
        "me@a.example;",
        "ceo@b.example: me@a.example;",
        "me@a.example ceo@b.example",
        "me@a.example <ceo@b.example",
        "<me@a.example> <ceo@b.example>",
        "<me@a.example> ceo@b.example",
        "<me@a.example>>",
        "<<me@a.example>>",
        r"(a\) <me@a.example>",
        r"me\@b.example <me@a.example>",
        '"open <me@a.example>',
        ")me@a.example",
        "me@a.example@b.example",
        "me@pin\u200bned.example",
        "(" * 3000 + ")" * 3000 + "me@a.example",
    ],
)
def test_an_ambiguous_from_is_not_parsed(value: str) -> None:
    assert read(value) is None


@pytest.mark.parametrize(
    "header",
    [
        b"From: me@a.example\r\nFrom: ceo@b.example",
        b"From: me@a.example\r\nFROM : ceo@b.example",
        b"From: me@a.example\rFrom: ceo@b.example",
        b"From: me@a.example\nFrom: ceo@b.example",
        b"Subject: x\nFrom: me@a.example",
    ],
)
def test_repeated_fields_and_stray_line_ends_are_not_parsed(header: bytes) -> None:
    assert authors(header + b"\r\n\r\nbody") is None


def test_without_a_from_field_there_is_no_author() -> None:
    assert authors(b"Subject: x\r\n\r\nFrom: me@a.example\r\n") == ()
    assert authors(b"\r\nFrom: me@a.example\r\n") == ()


_PIECES = st.sampled_from(
    [
        "me@a.example",
        "ceo@b.example",
        "<",
        ">",
        "(",
        ")",
        "\\",
        '"',
        ",",
        ";",
        ":",
        " ",
        "\r\n ",
        "x",
        "@",
        "[",
        "]",
        "\n",
    ]
)


@given(st.lists(_PIECES, max_size=16).map("".join))
def test_a_checked_from_is_signed_for_its_own_domain_only(value: str) -> None:
    content = f"From: {value}\r\n\r\nbody\r\n".encode()
    if originator_fault(MINE, content, adds_from=False) is None:
        assert author_domain(content) in {"a.example", None}


@pytest.mark.parametrize("stray", [b"\r", b"\n", b"\x00", b" \r\t"])
@pytest.mark.parametrize("before", [b"", b"From: me@a.example\r\n"])
def test_a_from_field_with_stray_octets_after_its_name_is_checked(stray: bytes, before: bytes) -> None:
    """The signer reads it with the space: it must find the same authors as the sender check."""
    header = b"Subject: x\r\n" + before + b"From" + stray + b": ceo@b.example\r\n\r\n"
    assert originator_fault(MINE, header, adds_from=True) == "from"
    assert authors(header) == authors(without_strays(header))
