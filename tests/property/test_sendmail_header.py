"""test_sendmail_header — sendmail -t finds the recipients that the header says, and takes Bcc out

Owns: headers of any case, folding, display name, comment and group, whose addresses are known beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.sendmail.message import Defaults, NotAMessage, Outgoing, compose, read

DEFAULTS: Final = Defaults("ann", "host.example", "Wed, 25 Nov 2026 08:00:00 +0000", "<1@host.example>")
LOCAL: Final = st.text("abcdefghijklmnopqrstuvwxyz0123456789._+-", min_size=1, max_size=8).filter(
    lambda text: not text.startswith(".") and not text.endswith(".") and ".." not in text
)
ADDRESS: Final = st.builds("{}@{}.example".format, LOCAL, st.sampled_from(["a", "b", "c-d"])) | LOCAL
FORM: Final = st.sampled_from(
    ["{}", "<{}>", "Ann <{}>", '"Doe, Ann" <{}>', "{} (a comment, with a comma)", "=?utf-8?q?=C3=A4?= <{}>"]
)
SPACE: Final = st.sampled_from([" ", "  ", "\n ", "\n\t", "\r\n "])
FIELDS: Final = ("To", "Cc", "Bcc", "Resent-To", "Resent-Cc", "Resent-Bcc", "Reply-To", "X-To", "Subject")


@dataclass(frozen=True)
class Field:
    """A field of a header with the addresses that it lists. group: whether they are in a group."""

    name: str
    addresses: tuple[tuple[str, str], ...]
    space: str
    group: bool

    @property
    def text(self) -> str:
        listed = ("," + self.space).join(form.format(address) for address, form in self.addresses)
        return f"{self.name}:{self.space}" + (f"friends: {listed};" if self.group else listed) + "\n"


@st.composite
def fields(draw: st.DrawFn) -> Field:
    name = draw(st.sampled_from(FIELDS))
    cased = draw(st.sampled_from([name, name.lower(), name.upper()]))
    listed = draw(st.lists(st.tuples(ADDRESS, FORM), max_size=4).map(tuple))
    return Field(cased, listed, draw(SPACE), draw(st.booleans()))


def full(address: str) -> str:
    return address if "@" in address else f"{address}@host.example"


def composed(header: str, *recipients: str, dot: bool = False) -> Outgoing:
    octets = read((header + "\nbody\n.\nmore\n").encode(), dot=dot)
    return compose(octets, recipients, None, DEFAULTS, from_header=True)


@given(st.lists(fields(), max_size=6), st.lists(ADDRESS, max_size=2))
def test_recipients_are_those_of_the_header_and_the_command_line(header: list[Field], words: list[str]) -> None:
    resent = any(field.name.lower() in {"resent-to", "resent-cc", "resent-bcc"} for field in header)
    names = {"resent-to", "resent-cc", "resent-bcc"} if resent else {"to", "cc", "bcc"}
    wanted = [*words, *(a for field in header if field.name.lower() in names for a, _ in field.addresses)]
    text = "".join(field.text for field in header)
    if not wanted:
        with pytest.raises(NotAMessage, match="a recipient is missing"):
            composed(text, *words)
        return
    found = composed(text, *words)
    assert found.recipients == tuple(dict.fromkeys(map(full, wanted)))
    head, _, body = found.content.partition(b"\r\n\r\n")
    assert body == b"body\r\n.\r\nmore\r\n"
    kept = [line.partition(b":")[0].lower() for line in head.split(b"\r\n") if line[:1] not in {b" ", b"\t"}]
    assert not {b"bcc", b"resent-bcc"} & set(kept)
    own = [field.name.lower().encode() for field in header if field.name.lower() not in {"bcc", "resent-bcc"}]
    assert kept == [*own, b"from", b"date", b"message-id"]


@given(st.binary(max_size=300), st.booleans())
def test_any_octets_become_lines_that_smtp_can_carry(octets: bytes, dot: bool) -> None:  # noqa: FBT001 - an example
    content = compose(read(octets, dot=dot), ["x"], None, DEFAULTS, from_header=False).content
    assert content.endswith(b"\r\n")
    assert b"\n" not in content.replace(b"\r\n", b"")
    assert b"\r" not in content.replace(b"\r\n", b"")
    assert b"\r\n\r\n" in content


def test_text_without_a_header_is_the_body() -> None:
    found = compose(read(b"Backup failed.\nDisk full\n", dot=True), ["root"], None, DEFAULTS, from_header=False)
    assert (found.sender, found.recipients) == ("ann@host.example", ("root@host.example",))
    assert found.content == (
        b"From: ann@host.example\r\nDate: Wed, 25 Nov 2026 08:00:00 +0000\r\nMessage-ID: <1@host.example>\r\n\r\n"
        b"Backup failed.\r\nDisk full\r\n"
    )


def test_a_dot_ends_the_message_unless_it_is_ignored() -> None:
    assert read(b"a\n.\nb\n", dot=True) == b"a\r\n"
    assert read(b"a\n.\nb\n", dot=False) == b"a\r\n.\r\nb\r\n"


@pytest.mark.parametrize("listed", ["a b@c.example", "a@b.example\x00", "<a@b.example> <"])
def test_what_cannot_be_an_address_is_never_sent_to(listed: str) -> None:
    try:
        found = composed(f"To: {listed}\n")
    except NotAMessage:
        return
    for address in found.recipients:
        assert not set(address) & set(" <>\x00\r\n")
