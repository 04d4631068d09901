"""test_smtp_reply — any octets, split anywhere, give the same replies, and no reply harms a terminal"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shared.mail.smtp_reply import KEPT, LINE_LIMIT, LINES_LIMIT, Reply, ReplyParser

TEXTS = st.text(st.sampled_from("abcXYZ0189.-_<>@:;%\\ßéл中🙂"), max_size=40)
ENHANCED = st.tuples(st.integers(0, 999), st.integers(0, 999))


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    code = draw(st.integers(2, 5)) * 100 + draw(st.integers(0, 99))
    lines = tuple(draw(st.lists(TEXTS, min_size=1, max_size=6)))
    if code // 100 == 3 or draw(st.booleans()):
        return Reply(code, None, lines)
    subject, detail = draw(ENHANCED)
    return Reply(code, f"{code // 100}.{subject}.{detail}", lines)


def render(reply: Reply) -> bytes:
    status = "" if reply.enhanced is None else f"{reply.enhanced} "
    last = len(reply.lines) - 1
    return "".join(
        f"{reply.code}{' ' if number == last else '-'}{status}{line}\r\n" for number, line in enumerate(reply.lines)
    ).encode()


def fed_in_pieces(received: bytes, cuts: list[int]) -> tuple[list[Reply], str | None]:
    parser = ReplyParser()
    found: list[Reply] = []
    edges = sorted({0, len(received), *(cut % (len(received) + 1) for cut in cuts)})
    for start, end in pairwise(edges):
        found += parser.feed(received[start:end])
    return found, parser.broken


# Text that reads like a status is lifted out as one; that case is the unit test's.
@given(
    sent=st.lists(replies().filter(lambda r: r.enhanced is not None or "." not in r.lines[0]), max_size=5),
    cuts=st.lists(st.integers(0, 10_000), max_size=20),
)
def test_rendered_replies_are_parsed_at_any_split(sent: list[Reply], cuts: list[int]) -> None:
    assert fed_in_pieces(b"".join(map(render, sent)), cuts) == (sent, None)


NOISE = st.one_of(
    st.binary(max_size=400),
    st.lists(
        st.sampled_from([b"250 ok\r\n", b"250-", b"550 5.1.1", b"\r\n", b"\n", b"\r", b"\x1b[2J", b"2", b"\xff"]),
        max_size=60,
    ).map(b"".join),
)


@given(noise=NOISE, cuts=st.lists(st.integers(0, 10_000), max_size=20))
def test_any_octets_are_parsed_equally_at_any_split(noise: bytes, cuts: list[int]) -> None:
    whole = fed_in_pieces(noise, [])
    assert fed_in_pieces(noise, cuts) == whole
    for reply in whole[0]:
        assert str(reply).isprintable()
        assert len(reply.lines) <= LINES_LIMIT
        assert sum(map(len, reply.lines)) <= 10 * KEPT
    assert whole[1] is None or whole[1].isprintable()


@given(noise=st.binary(min_size=1, max_size=64), times=st.integers(1, 4000))
def test_the_memory_of_the_parser_is_bounded(noise: bytes, times: int) -> None:
    parser = ReplyParser()
    for _ in range(times):
        parser.feed(noise)
        if parser.broken is not None:
            break
    assert len(parser._buffer) < LINE_LIMIT
    assert sum(map(len, (*parser._head, *parser._tail))) <= KEPT
