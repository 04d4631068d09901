"""test_dot_stuffing — no content can end DATA early, and clean content arrives octet for octet"""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queued.smtp import content as smtp_content
from queued.smtp.client import SmtpConnection
from queued.smtp.content import wire_pieces, wire_size
from queued.smtp.transaction import Timeouts, Transaction
from scripts.sink.server import Sink

LINES = st.lists(
    st.one_of(
        st.sampled_from([b"", b".", b"..", b".x", b"text", b"\xff\x80", b"x" * 70]),
        st.binary(max_size=30).map(lambda octets: re.sub(rb"[\r\n\x00]", b"", octets)),
    ),
    max_size=40,
)
CLEAN = LINES.map(lambda lines: b"".join(line + b"\r\n" for line in lines))
ANY = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b".", b"\x00", b"a", b"RSET", b"\xe9"]), max_size=60).map(
    b"".join
)


@pytest.fixture(params=[1, 2, 3, 7, 65536])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The size of pieces: any split is allowed."""
    monkeypatch.setattr(smtp_content, "PIECE", request.param)
    return int(request.param)


def undo(wire: bytes) -> bytes:
    """RFC 5321 §4.5.2, written as the receiver's state machine rather than as replacements."""
    content = bytearray()
    for line in wire.removesuffix(b".\r\n").split(b"\r\n"):
        content += line.removeprefix(b".") + b"\r\n"
    return bytes(content[:-2])


# The fixture is the same for every example of one parameter, as intended.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=CLEAN.filter(bool))
def test_clean_content_is_unchanged_but_for_doubled_dots(piece: int, content: bytes) -> None:
    wire = b"".join(wire_pieces(content))
    assert undo(wire) == content
    assert wire_size(content) == len(content)
    if not re.search(rb"^\.", content, re.MULTILINE):
        assert wire == content + b".\r\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=ANY)
def test_no_content_ends_the_data(piece: int, content: bytes) -> None:
    wire = b"".join(wire_pieces(content))
    assert wire.endswith(b"\r\n.\r\n")
    assert wire.find(b"\r\n.\r\n") == len(wire) - 5
    assert not wire.startswith(b".\r\n")
    assert wire.count(b"\r") == wire.count(b"\n") == wire.count(b"\r\n")
    assert b"\x00" not in wire
    # Replaced one for one: nothing is added but dots and the last line's end.
    assert len(undo(wire)) == wire_size(content)


@pytest.mark.parametrize(
    "end", [b"\r\n.\r\n", b"\n.\n", b"\r.\r", b"\n.\r\n", b"\r\n.\n", b"\r\n.\r", b"\r\n\x00.\r\n"]
)
def test_known_smuggling_sequences_do_not_end_the_data(end: bytes) -> None:
    wire = b"".join(wire_pieces(b"a" + end + b"MAIL FROM:<evil@example.com>\r\n"))
    assert wire.find(b"\r\n.\r\n") == len(wire) - 5
    assert end not in wire[:-5]


def test_a_large_message_is_sent_in_pieces() -> None:
    content = b"." * 3 * smtp_content.PIECE + b"\r\n"
    pieces = list(wire_pieces(content))
    assert len(pieces) == 4
    assert undo(b"".join(pieces)) == content


async def test_the_sink_receives_the_content_that_the_client_sends() -> None:
    """Client and sink share no code, so each checks the other."""
    async with Sink(keep_content=True) as sink:
        connection = await SmtpConnection.open("127.0.0.1", sink.port, hostname="test.example", timeouts=Timeouts())
        samples: list[bytes] = []

        @given(content=CLEAN.filter(bool))
        @settings(max_examples=200, database=None)
        def collect(content: bytes) -> None:
            samples.append(content)

        collect()
        for content in samples:
            result = await connection.send(Transaction("a@example.com", ("b@example.com",), content))
            assert result.final is not None
            assert result.final.is_positive
        await connection.close()
        assert [record.content for record in sink.received] == samples
        assert sink.violations == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=(CLEAN | ANY).filter(bool), lines=st.integers(0, 3))
def test_a_prefix_is_sent_before_the_content_at_any_split(content: bytes, lines: int, piece: int) -> None:
    prefix = b"X-Before: this\r\n" * lines
    wire = b"".join(wire_pieces(content, prefix))
    assert wire == prefix + b"".join(wire_pieces(content))
    assert wire_size(content, prefix) == len(prefix) + wire_size(content)
