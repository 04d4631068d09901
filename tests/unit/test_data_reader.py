"""test_data_reader — the end of DATA is found wherever it is cut, and nothing else is taken for it

Owns: examples for smtpd/data_reader.py; tests/property/test_data_reader.py searches for more.
See: RFC 5321 sections 4.1.1.4 and 4.5.2.
"""

from __future__ import annotations

import pytest

from smtpd.data_reader import DataReader

LIMIT = 1_000_000


def read(*blocks: bytes, limit: int = LIMIT) -> tuple[bytes | None, bytes | None]:
    """Content and rest after these blocks; the rest is None while the end has not come."""
    reader = DataReader(limit)
    for number, block in enumerate(blocks, start=1):
        rest = reader.feed(block)
        if rest is not None:
            assert number == len(blocks), "the end came early"
            return reader.content(), rest
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
        (b".a\r\n.\r\n", b"a\r\n"),  # section 4.5.2: the first dot goes whatever follows
        (b"a.\r\n.\r\n", b"a.\r\n"),
        (b"a..b\r\n.\r\n", b"a..b\r\n"),
        (b"..\r\n..\r\n..\r\n.\r\n", b".\r\n.\r\n.\r\n"),
        (b". \r\n.\r\n", b" \r\n"),
        (b"\0\xff\r\n.\r\n", b"\0\xff\r\n"),
    ],
)
def test_dots_are_taken_out_wherever_the_octets_are_cut(wire: bytes, content: bytes) -> None:
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
def test_what_follows_the_end_is_handed_back(rest: bytes) -> None:
    wire = b"a\r\n.\r\n"
    assert read(wire + rest) == (b"a\r\n", rest)
    for cut in range(1, len(wire)):
        assert read(wire[:cut], wire[cut:] + rest) == (b"a\r\n", rest)


def test_the_limit_is_on_the_content_without_stuffed_dots() -> None:
    line = b"..\r\n"
    assert read(line * 10 + b".\r\n", limit=30) == (b".\r\n" * 10, b"")
    assert read(line * 10 + b".\r\n", limit=29) == (None, b"")
    assert read(b"a\r\n.\r\n", limit=3) == (b"a\r\n", b"")
    assert read(b"a\r\n.\r\n", limit=2) == (None, b"")


def test_far_beyond_the_limit_memory_is_bounded_and_the_end_is_still_found() -> None:
    reader = DataReader(1000)
    largest = 0
    for _ in range(1000):
        assert reader.feed(b"x" * 998 + b"\r\n") is None
        largest = max(largest, len(reader._buffer))
    assert reader.too_big
    assert largest < 1000 + 65536 + 1000 + 2
    assert reader.feed(b".\r\nNOOP\r\n") == b"NOOP\r\n"
    assert reader.content() is None


@pytest.mark.parametrize("cut", range(6))
def test_the_end_is_found_across_the_place_where_content_was_dropped(cut: int) -> None:
    end = b"\r\n.\r\n"
    reader = DataReader(10)
    assert reader.feed(b"x" * 100_000 + end[:cut]) == (b"" if cut == 5 else None)
    if cut < 5:
        assert reader.too_big
        assert reader.feed(end[cut:] + b"R") == b"R"
    assert reader.content() is None
