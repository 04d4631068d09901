"""test_next_hop_replies — a next hop with huge replies costs little memory and does not delay others

Owns: a reply keeps about 2 KB, a reply over the limit ends the session, and reading stops at
    the needed replies; control characters become their escapes after that, so that they make nothing large.
"""

from __future__ import annotations

import asyncio
import resource
from datetime import timedelta
from typing import TYPE_CHECKING

from queued.outcome.classify import classify
from queued.smtp import wire as under_test
from queued.smtp.client import SmtpConnection
from queued.smtp.transaction import Timeouts, Transaction
from shared.mail.smtp_reply import KEPT, ReplyParser
from tests.fixtures.daemons.dispatching import dispatching
from tests.fixtures.heard import until
from tests.fixtures.peers.hostile_peer import honest, hostile

if TYPE_CHECKING:
    import pytest

    from tests.fixtures.database.factory import Factory

LONG = b"".join(b"550%c" % b"- "[line == 99] + b"\x01" * 8180 + b"\r\n" for line in range(100))
LIMITS = Timeouts(mail=5, rcpt=5, data=5, dot=5, rset=1)


async def verbose(line: bytes) -> bytes:
    return LONG if line.upper().startswith(b"RCPT") else await honest(line)


async def test_a_hundred_lines_of_control_characters_take_little_memory(factory: Factory) -> None:
    """It was 3.2 MB of text for each recipient: 80 MB became 2.2 GB."""
    for _ in range(10):
        factory.rows(50, message=factory.message())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    changes = {"retry": {"intervals": ["1h"]}, "feedback": {"initial": 20, "cohorts": 0}}
    async with (
        hostile(verbose) as peer,
        dispatching(factory.uri, peer.port, timedelta(minutes=1), inflight=1000, changes=changes),
    ):
        await until(lambda: len(factory.attempts()) == 500, "every recipient to have been tried")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KiB
    assert grown < 100 * 1024, f"{grown} KiB"
    assert {(each.outcome, each.uncertain) for each in factory.attempts()} == {("deferred", False)}
    assert {row.last_error for row in factory.queue()} == {"reply of more than 32768 octets"}


def test_the_first_and_last_lines_of_a_long_reply_are_kept_and_escaped() -> None:
    lines = [f"550-5.7.1 line {number} ".encode() + b"\x1b" * 100 + b"\r\n" for number in range(60)]
    [reply] = ReplyParser().feed(b"".join(lines) + b"550 5.7.1 see https://evil.test/why\r\n")
    assert (reply.code, reply.enhanced, reply.is_permanent) == (550, "5.7.1", True)
    assert reply.lines[0].startswith("line 0 \\x1b")
    assert reply.lines[-1] == "see https://evil.test/why"
    [left_out] = [line for line in reply.lines if line.startswith("[")]
    assert left_out.endswith(" lines left out]")
    assert sum(map(len, reply.lines)) <= 4 * KEPT + len(left_out)
    assert str(reply).isprintable()


def test_a_line_is_truncated_between_characters() -> None:
    [reply] = ReplyParser().feed(b"550 " + "é".encode() * 2000 + b"\r\n")
    assert reply.lines == ("é" * ((KEPT // 2 - 3) // 2) + "…",)


async def test_reading_stops_while_replies_are_unprocessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_MOST_HELD", 4000)
    many = Transaction("a@example.com", tuple(f"r{n}@example.net" for n in range(200)), b"x\r\n")

    async def wordy(line: bytes) -> bytes:
        return b"250 " + b"x" * 900 + b"\r\n" if line.upper().startswith(b"RCPT") else await honest(line)

    async with hostile(wordy) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="us.test", timeouts=LIMITS)
        most = 0
        hold = under_test.Wire._hold

        def watched(wire: under_test.Wire, octets: int) -> None:
            nonlocal most
            hold(wire, octets)
            most = max(most, wire._held)

        monkeypatch.setattr(under_test.Wire, "_hold", watched)
        result = await connection.send(many)
        connection.abort()
        await asyncio.sleep(0)
    assert {outcome.kind for outcome in classify(result)} == {"delivered"}
    assert most < 4000 + 2 * 4096, "one read more at most"
    assert under_test._HELD.octets == 0


async def test_replies_over_the_total_limit_end_the_session() -> None:
    many = Transaction("a@example.com", tuple(f"r{n}@example.net" for n in range(20)), b"x\r\n")

    async def wordy(line: bytes) -> bytes:
        if line.upper().startswith(b"RCPT"):
            return b"250-" + b"x" * 6000 + b"\r\n250 ok\r\n"
        return await honest(line)

    async with hostile(wordy) as peer:
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="us.test", timeouts=LIMITS)
        result = await connection.send(many)
    assert {(each.kind, each.enhanced) for each in classify(result)} == {("deferred", "4.5.0")}
    assert classify(result)[0].text == f"replies of more than {65536 + 22 * 1024} octets"
