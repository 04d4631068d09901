"""test_line_fuzz — in every state each line gets one valid reply, and the session continues or ends properly

Owns: each state with each kind of line, with a server that spools nothing; tests/integration/smtpd/test_line_fuzz.py
    walks at random for longer.
See: RFC 5321 sections 4.1.4, 4.2; mox's fuzzing of its SMTP server, which feeds one line to each state.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.spool.spool import Spool
from tests.fixtures.daemons.line_fuzz import COMMANDS
from tests.fixtures.daemons.login import HASH
from tests.fixtures.daemons.serving import Dialogue, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.mail.message import Submission

MAIL = b"MAIL FROM:<a@sender.example>"
RCPT = b"RCPT TO:<b@example.com>"
#: The lines sent before, in order, each with the code of its reply.
STATES: Final = {
    "connected": [],
    "greeted": [(b"EHLO client.example", "250")],
    "old": [(b"HELO client.example", "250")],
    "mail": [(b"EHLO client.example", "250"), (MAIL, "250")],
    "rcpt": [(b"EHLO client.example", "250"), (MAIL, "250"), (RCPT, "250")],
    "data": [(b"EHLO client.example", "250"), (MAIL, "250"), (RCPT, "250"), (b"DATA", "354")],
    "chunks": [(b"EHLO client.example", "250"), (MAIL, "250"), (RCPT, "250"), (b"BDAT 4\r\nab", "250")],
    "challenge": [(b"EHLO client.example", "250"), (b"AUTH LOGIN", "334")],
    "password": [(b"EHLO client.example", "250"), (b"AUTH LOGIN", "334"), (b"YWxpY2U=", "334")],
}
WORDS = st.sampled_from([command.partition(b"\r\n")[0] for command in COMMANDS])
LINES = st.one_of(
    WORDS,
    st.tuples(WORDS, st.integers(0, 30), st.binary(max_size=4)).map(
        lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] :]
    ),
    st.binary(max_size=60),
    st.integers(0, 20_000).map(lambda length: b"NOOP " + b"x" * length),
)
REPLY = re.compile(rb"(?:([2-5][0-9]{2})-[\x20-\x7e]*\r\n)*([2-5][0-9]{2}) [\x20-\x7e]*\r\n")


class Nowhere(Spool):
    """Takes every message and keeps none."""

    async def submit(self, submission: Submission) -> None:
        """As in Spool."""

    async def run(self) -> None:
        """As in Spool."""
        await asyncio.Event().wait()


@contextmanager
def faults() -> Iterator[list[str]]:
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "session.error":
                found.append(str(getattr(record, "fields", "")))

    handler, log = Handler(), logging.getLogger("pillarbox")
    log.addHandler(handler)
    try:
        yield found
    finally:
        log.removeHandler(handler)


async def answered(state: str, line: bytes) -> bytes:
    """Everything that is said to this line in this state, until the client, which says no more, is hung up on."""
    users = {"users": {"alice": HASH}, "tlsonly": False, "failures": {"delay": "0s", "maxdelay": "0s"}}
    async with serving("", spool=Nowhere, authentication=users) as port, Dialogue(port, ehlo=None) as client:
        for before, code in STATES[state]:
            assert (await client.ask(before)).startswith(code)
        await client.send(line + b"\r\n")
        client.writer.write_eof()
        return await client.ended()


@given(st.sampled_from(sorted(STATES)), LINES)
@settings(max_examples=150)
def test_every_line_gets_one_valid_reply_in_every_state(state: str, line: bytes) -> None:
    with faults() as found:
        said = asyncio.run(answered(state, line))
    assert found == []
    replies = [match.group() for match in REPLY.finditer(said)]
    assert b"".join(replies) == said
    for reply in replies:
        codes = {part[:3] for part in reply.splitlines()}
        assert len(codes) == 1
        enhanced = re.match(rb"[245][0-9]{2}[ -][245]\.[0-9]{1,3}\.[0-9]{1,3} ", reply)
        assert enhanced or reply[:3] in {b"220", b"250", b"334", b"354"}
    # It waits for octets, or for a hash. What is white around an argument is not part of it.
    waits = re.match(rb"BDAT [\s\x1c-\x1f]*[0-9]+( +LAST)?[\s\x1c-\x1f]*$|AUTH ", line, re.IGNORECASE)
    if state in {"data", "challenge", "password"} or b"\r\n" in line or waits:
        return  # content and answers have no reply of their own, several lines have several
    assert len(replies) == 1
