"""test_data_reader — the end of DATA is found however the octets are split, and nothing else ends it

Owns: examples for smtpd/commands/data.py, DataReader; tests/property/smtpd/test_data_reader.py searches for more.
See: RFC 5321 sections 4.1.1.4 and 4.5.2.
"""

from __future__ import annotations

import pytest

from smtpd.commands.data import DataReader


def read(*blocks: bytes) -> tuple[bytes | None, bytes | None]:
    """Content and rest after these blocks; both are None while the end has not come."""
    pieces: list[bytes] = []
    reader = DataReader(pieces.append)
    for number, block in enumerate(blocks, start=1):
        rest = reader.feed(block)
        if rest is not None:
            assert number == len(blocks), "the end came early"
            return b"".join(pieces), rest
    return None, None


@pytest.mark.parametrize(
    ("wire", "content"),
    [
        (b".\r\n", b""),
        (b"\r\n.\r\n", b"\r\n"),
        (b"a\r\n.\r\n", b"a\r\n"),
        (b"..\r\n.\r\n", b".\r\n"),
        (b"..a\r\n.\r\n", b".a\r\n"),
        (b"...\r\n.\r\n", b"..\r\n"),
        (b".a\r\n.\r\n", b"a\r\n"),  # section 4.5.2: the first dot is removed before any text
        (b"a.\r\n.\r\n", b"a.\r\n"),
        (b"a..b\r\n.\r\n", b"a..b\r\n"),
        (b"..\r\n..\r\n..\r\n.\r\n", b".\r\n.\r\n.\r\n"),
        (b". \r\n.\r\n", b" \r\n"),
        (b"\0\xff\r\n.\r\n", b"\0\xff\r\n"),
    ],
)
def test_stuffed_dots_are_removed_at_any_split(wire: bytes, content: bytes) -> None:
    assert read(wire) == (content, b"")
    for cut in range(1, len(wire)):
        assert read(wire[:cut], wire[cut:]) == (content, b"")
    assert read(*(wire[i : i + 1] for i in range(len(wire)))) == (content, b"")


@pytest.mark.parametrize(
    "not_the_end",
    [
        b"\n.\n",
        b"\r.\r",
        b"\n.\r\n",
        b"\r\n.\n",
        b"\r\n.\r",
        b"\r.\r\n",
        b"\r\n. \r\n",
        b"\n\r\n.\n\r\n",
        b"\r\r\n.\r\r\n",
    ],
)
def test_only_the_whole_sequence_ends_the_data(not_the_end: bytes) -> None:
    wire = b"a" + not_the_end + b"b"
    assert read(wire) == (None, None)
    content, rest = read(wire + b"\r\n.\r\n")
    assert rest == b""
    assert content is not None
    # A dot at the beginning of a line is a stuffed one; everything else is as it came.
    assert content == (wire + b"\r\n").replace(b"\r\n.", b"\r\n")


def test_a_line_that_only_ends_in_the_middle_is_not_the_end() -> None:
    for cut in (b"a\r\n", b"a\r\n.", b"a\r\n.\r", b"", b"."):
        assert read(cut) == (None, None)


@pytest.mark.parametrize("rest", [b"", b"MAIL FROM:<a@b>\r\n", b".\r\n", b"\r\n.\r\n", b"\n"])
def test_octets_after_the_end_are_returned(rest: bytes) -> None:
    wire = b"a\r\n.\r\n"
    assert read(wire + rest) == (b"a\r\n", rest)
    for cut in range(1, len(wire)):
        assert read(wire[:cut], wire[cut:] + rest) == (b"a\r\n", rest)


def test_only_a_possible_beginning_of_the_end_is_kept() -> None:
    reader = DataReader(lambda _: None)
    for block in (b"x" * 100_000, b"\r\n" * 50_000, b"\r\n.\r" * 20_000, b"\r\n..\r\n"):
        assert reader.feed(block) is None
        assert len(reader._tail) <= 4
    assert reader.feed(b".\r\nNOOP\r\n") == b"NOOP\r\n"


def test_content_is_handed_on_at_once() -> None:
    pieces: list[bytes] = []
    reader = DataReader(pieces.append)
    for block in (b"one\r\n", b"two", b"\r\n..three\r\n"):
        reader.feed(block)
    assert pieces == [b"one", b"\r\ntwo", b"\r\n.three"]
