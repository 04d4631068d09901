"""test_line_buffer — lines end with CR LF, and an invalid line is never a command

Owns: examples for smtpd/connection/line_buffer.py; tests/property/smtpd/test_line_buffer.py searches for more.
See: RFC 5321 sections 2.3.8, 4.5.3.1.4; RFC 4954 section 4.
"""

from __future__ import annotations

import pytest

from smtpd.connection.line_buffer import AUTH_LIMIT, LineAtFault, LineBuffer

LIMIT = 20


def said(*blocks: bytes, limit: int = LIMIT) -> list[bytes | str]:
    """The lines in these blocks, and the enhanced codes of faults."""
    buffer = LineBuffer(limit)
    found: list[bytes | str] = []
    for block in blocks:
        buffer.add(block)
        while True:
            try:
                line = buffer.next()
            except LineAtFault as fault:
                found.append(fault.reply[:9])
                continue
            if line is None:
                break
            found.append(line)
    return found


BAD = "500 5.5.2"


@pytest.mark.parametrize(
    ("blocks", "found"),
    [
        ([b"NOOP\r\n"], [b"NOOP"]),
        ([b"NO", b"OP\r", b"\n"], [b"NOOP"]),
        ([b"a\r\nb\r\nc"], [b"a", b"b"]),
        ([b"\r\n\r\n"], [b"", b""]),
        ([b"a\nb\r\nc\r\n"], [BAD, b"c"]),
        ([b"a\rb\r\nc\r\n"], [BAD, b"c"]),
        ([b"a\r\r\nc\r\n"], [BAD, b"c"]),
        ([b"a\n", b"b\r\n", b"c\r\n"], [BAD, BAD, b"c"]),
        ([b"a\n", b"b\n", b"\r\n", b"c\r\n"], [BAD, BAD, BAD, b"c"]),
        ([b"x" * 20 + b"\r\n"], [b"x" * 20]),
        ([b"x" * 21 + b"\r\nc\r\n"], [BAD, b"c"]),
        ([b"x" * 21, b"y" * 500, b"\r", b"\nc\r\n"], [BAD, b"c"]),
        ([b"x" * 21, b"y\n", b"z\r\nc\r\n"], [BAD, b"c"]),
        ([b"AUTH " + b"x" * (AUTH_LIMIT - 5) + b"\r\n"], [b"AUTH " + b"x" * (AUTH_LIMIT - 5)]),
        ([b"auth " + b"x" * AUTH_LIMIT + b"\r\nc\r\n"], [BAD, b"c"]),
        ([b"AUTHX" + b"x" * 100 + b"\r\nc\r\n"], [BAD, b"c"]),
    ],
)
def test_lines_are_split_at_crlf(blocks: list[bytes], found: list[bytes | str]) -> None:
    assert said(*blocks) == found


def test_a_line_that_never_ends_takes_no_memory() -> None:
    buffer = LineBuffer(LIMIT)
    buffer.add(b"x" * 100)
    with pytest.raises(LineAtFault):
        buffer.next()
    for _ in range(100):
        buffer.add(b"x" * 1000)
        assert buffer.next() is None
        assert buffer.pending <= 1


def test_complete_is_true_when_a_line_has_ended() -> None:
    buffer = LineBuffer(LIMIT)
    for octets, complete in ((b"a", False), (b"\r", False), (b"\nb", True)):
        buffer.add(octets)
        assert buffer.complete is complete
    buffer.next()
    assert not buffer.complete
    buffer.add(b"\n")
    assert buffer.complete


def test_buffered_octets_can_be_taken_as_content() -> None:
    buffer = LineBuffer(LIMIT)
    buffer.add(b"DATA\r\nSubject: x\r\n")
    assert buffer.next() == b"DATA"
    assert buffer.take() == b"Subject: x\r\n"
    assert buffer.pending == 0


def test_part_of_the_buffer_can_be_taken_without_copying_the_rest() -> None:
    """A packet of many small chunks would be copied once for each."""
    buffer = LineBuffer(LIMIT)
    packet = b"BDAT 2\r\nxx" * 1000
    buffer.add(packet)
    for left in range(999, -1, -1):
        assert buffer.next() == b"BDAT 2"
        assert buffer.take(0) == b""
        assert buffer.take(2) == b"xx"
        assert buffer.pending == left * 10
        assert buffer._octets is packet or not left
    buffer.add(b"abc")
    assert buffer.take(5) == b"abc"
    assert buffer.pending == 0
