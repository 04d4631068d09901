"""test_line_length — no line that leaves is too long, and nothing but line ends and white space is added"""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queued.smtp.line_length import break_lines, within
from queued.values import Body

LIMIT = 78
CONTENT = st.lists(
    st.one_of(
        st.sampled_from([b"\r\n", b" ", b"\t", b"\r", b"\n", b".", "ü".encode(), "€".encode(), "😀".encode(), b"\x80"]),
        st.integers(1, 3 * LIMIT).map(lambda n: b"x" * n),
        st.integers(1, 3 * LIMIT).map(lambda n: b"\x80" * n),
        st.lists(st.integers(1, 30), max_size=20).map(lambda sizes: b" ".join(b"w" * size for size in sizes)),
        st.text(max_size=100).map(str.encode),
    ),
    max_size=20,
).map(b"".join)


@given(CONTENT)
def test_no_line_is_too_long(content: bytes) -> None:
    assert all(len(line) <= LIMIT for line in break_lines(content, LIMIT).split(b"\r\n"))


@given(CONTENT)
def test_only_line_ends_before_white_space_and_spaces_are_added(content: bytes) -> None:
    made, given_ = (re.sub(rb"\r\n(?=[ \t])", b"", text) for text in (break_lines(content, LIMIT), content))
    assert made.replace(b" ", b"") == given_.replace(b" ", b"")


@given(CONTENT)
def test_short_lines_are_left_as_they_are(content: bytes) -> None:
    longest = max(map(len, content.split(b"\r\n")))
    assert (break_lines(content, LIMIT) is content) == (longest <= LIMIT)


@given(st.text(max_size=400))
def test_no_character_is_divided(text: str) -> None:
    break_lines(text.encode(), LIMIT).decode()


@given(CONTENT)
def test_broken_lines_stay_as_they_are(content: bytes) -> None:
    made = break_lines(content, LIMIT)
    assert break_lines(made, LIMIT) is made


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        (b"x" * 78, b"x" * 78),
        (b"x" * 79, b"x" * 78 + b"\r\n x"),
        (b"x" * 200, b"x" * 78 + b"\r\n " + b"x" * 77 + b"\r\n " + b"x" * 45),
        (b"a" * 70 + b" " + b"b" * 20, b"a" * 70 + b"\r\n " + b"b" * 20),
        (b"a" * 78 + b"\tb", b"a" * 78 + b"\r\n\tb"),
        (b" " + b"a" * 100, b" " + b"a" * 77 + b"\r\n " + b"a" * 23),
        (b"a" * 77 + "ü".encode(), b"a" * 77 + b"\r\n " + "ü".encode()),
    ],
)
def test_a_line_is_broken_before_white_space_or_with_a_space(line: bytes, broken: bytes) -> None:
    for before, after in ((b"", b""), (b"Subject: x\r\n", b"\r\nend\r\n")):
        assert break_lines(before + line + after, LIMIT) == before + broken + after


@pytest.mark.parametrize("size", [100, 2_000_000])
async def test_a_body_is_broken_once_for_all_recipients(size: int) -> None:
    long, short = Body(b"x" * size, smtputf8=True), Body(b"x\r\n" * (size // 3), smtputf8=False)
    one, other, same = await asyncio.gather(within(long, LIMIT), within(long, LIMIT), within(short, LIMIT))
    assert one is other is await within(long, LIMIT)
    assert (one.content, one.smtputf8) == (break_lines(long.content, LIMIT), True)
    assert same is short is await within(short, LIMIT)
    assert await within(long, size) is long
