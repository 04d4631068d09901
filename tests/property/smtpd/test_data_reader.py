"""test_data_reader — any content, dot-stuffed and split anywhere, is read as it was written

Owns: properties of smtpd/commands/data.py, DataReader against a reference that looks at whole lines.
See: RFC 5321 section 4.5.2.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smtpd.commands.data import DataReader

# Mostly the octets that matter, in all orders; now and then any other.
OCTETS = st.lists(st.sampled_from([b"\r", b"\n", b".", b"a", b"\r\n", b"\r\n.", b"\0"]) | st.binary(max_size=3)).map(
    b"".join
)
CUTS = st.lists(st.integers(min_value=1, max_value=7), min_size=1, max_size=8)


def chunked(wire: bytes, cuts: list[int]) -> list[bytes]:
    """The octets in pieces of repeating sizes."""
    pieces, at, number = [], 0, 0
    while at < len(wire):
        size = cuts[number % len(cuts)]
        pieces.append(wire[at : at + size])
        at, number = at + size, number + 1
    return pieces


def stuffed(content: bytes) -> bytes:
    """The octets that a client sends: lines that begin with a dot get another, and a single dot ends it."""
    lines = content.split(b"\r\n")
    return b"\r\n".join(b"." + line if line.startswith(b".") else line for line in lines) + b".\r\n"


def reference(wire: bytes) -> tuple[bytes, bytes] | None:
    """Content and rest by looking for the first line that is a lone dot."""
    lines = wire.split(b"\r\n")
    for number, line in enumerate(lines[:-1]):
        if line == b".":
            content = [each.removeprefix(b".") for each in lines[:number]]
            return b"".join(each + b"\r\n" for each in content), b"\r\n".join(lines[number + 1 :])
    return None


def feed(wire: bytes, cuts: list[int]) -> tuple[bytes, bytes] | None:
    content: list[bytes] = []
    reader = DataReader(content.append)
    pieces = chunked(wire, cuts)
    for number, piece in enumerate(pieces):
        rest = reader.feed(piece)
        if rest is not None:
            return b"".join(content), rest + b"".join(pieces[number + 1 :])
    return None


@given(OCTETS, OCTETS, CUTS)
def test_stuffed_content_is_read_as_it_was_written(content: bytes, rest: bytes, cuts: list[int]) -> None:
    whole = content + b"\r\n"
    assert feed(stuffed(whole) + rest, cuts) == (whole, rest)


@given(OCTETS, CUTS)
def test_any_octets_are_read_like_the_reference(wire: bytes, cuts: list[int]) -> None:
    assert feed(wire, cuts) == reference(wire)
