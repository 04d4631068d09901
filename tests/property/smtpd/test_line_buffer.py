"""test_line_buffer — octets split anywhere give the same lines, and no line that was not sent

Owns: properties of smtpd/connection/line_buffer.py.
See: RFC 5321 section 2.3.8.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smtpd.connection.line_buffer import LineAtFault, LineBuffer

LIMIT = 12
OCTETS = st.lists(
    st.sampled_from([b"\r", b"\n", b"\r\n", b"NOOP\r\n", b"a", b"x" * LIMIT]) | st.binary(max_size=3)
).map(b"".join)
CUTS = st.lists(st.integers(min_value=1, max_value=9), min_size=1, max_size=6)


def lines(octets: bytes, cuts: list[int]) -> list[bytes]:
    """Every line that is handed out."""
    buffer, found, at, number = LineBuffer(LIMIT), list[bytes](), 0, 0
    while at < len(octets):
        size = cuts[number % len(cuts)]
        buffer.add(octets[at : at + size])
        at, number = at + size, number + 1
        while True:
            try:
                line = buffer.next()
            except LineAtFault:
                continue
            if line is None:
                break
            found.append(line)
        assert buffer.pending <= LIMIT + 9
        assert not buffer.complete
    return found


@given(OCTETS, CUTS)
def test_only_text_between_two_crlf_is_a_line(octets: bytes, cuts: list[int]) -> None:
    sent = [line for line in octets.split(b"\r\n")[:-1] if len(line) <= LIMIT and not {10, 13} & set(line)]
    found = lines(octets, cuts)
    # An invalid line may swallow the next CR LF, and never adds one: all lines found were sent, in their order.
    rest = iter(sent)
    assert all(line in rest for line in found)


@given(st.lists(st.binary(max_size=LIMIT).filter(lambda line: not {10, 13} & set(line))), CUTS)
def test_all_valid_lines_are_returned(sent: list[bytes], cuts: list[int]) -> None:
    assert lines(b"".join(line + b"\r\n" for line in sent), cuts) == sent
