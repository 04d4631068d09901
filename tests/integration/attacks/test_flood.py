"""test_flood — a client that floods us with commands does not delay others or fill the log, and is disconnected

Owns: turns of the event loop, the cost of commands that are answered 4xx or do nothing, and excess recipients.
See: RFC 5321 section 4.5.3.1.10; Postfix smtpd_junk_command_limit, smtpd_recipient_overshoot_limit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from smtpd.session.session import Session
from tests.fixtures.daemons.serving import Dialogue, serving

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

RCPT = b"RCPT TO:<b@example.com>\r\n"
DEFERRED = {"rules": [{"id": "later", "then": {"defer": "450 4.7.1 Later"}}]}


def server(junk: int, hard: int = 10_000, **phases: Any) -> dict[str, Any]:
    limits = {"junkcommands": junk, "softerrors": 10_000, "harderrors": hard}
    return {"limits": limits, "phases": phases}


class Turns:
    """How many commands were answered between two turns of everybody else."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.answered = self.most = self.all = 0
        self._loop = asyncio.get_running_loop()
        charge = Session.charge

        def counted(session: Session, reply: str) -> None:
            self.answered += 1
            self.all += 1
            charge(session, reply)

        patch.setattr(Session, "charge", counted)
        self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.most = max(self.most, self.answered)
        self.answered = 0
        self._next = self._loop.call_soon(self._turn)

    def end(self) -> None:
        """Count no more."""
        self._next.cancel()


@pytest.mark.parametrize(
    "flood", [RCPT * 5000, b"RSET\r\n" * 5000, b"BDAT 0\r\n" * 5000, b"BDAT 1\r\nX" * 5000, b"NONSENSE\r\n" * 5000]
)
async def test_pipelined_commands_do_not_block_other_clients(
    factory: Factory, monkeypatch: pytest.MonkeyPatch, flood: bytes
) -> None:
    async with serving(factory.uri, server=server(1_000_000)) as port, Dialogue(port) as client:
        await client.envelope()
        turns = Turns(monkeypatch)
        sending = asyncio.create_task(client.send(flood + b"QUIT\r\n"))
        said = await client.ended()
        turns.end()
        await sending
    assert said.endswith(b"221 2.0.0 Bye\r\n") or b"421 4.7.0" in said
    assert turns.all > 1000
    assert turns.most <= 50


async def test_endless_immediate_retries_end_the_session(factory: Factory, heard: Heard) -> None:
    async with serving(factory.uri, server=server(20, hard=5), policy=DEFERRED) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250")
        await client.send(RCPT * 5_000)
        said = await client.ended()
    replies = said.splitlines()
    assert len(replies) == 25  # EHLO was one of the 20
    assert replies[-1].startswith(b"421 4.7.0")
    assert set(replies[:-1]) == {b"450 4.7.1 Later"}
    assert len(heard.all("session.refused")) == 24


async def test_endless_empty_chunks_end_the_session(factory: Factory) -> None:
    async with serving(factory.uri, server=server(20, hard=5)) as port, Dialogue(port) as client:
        await client.envelope()
        await client.send(b"BDAT 0\r\n" * 5000)
        said = await client.ended()
    assert said.count(b"\r\n") == 25
    assert b"421 4.7.0" in said


async def test_recipients_over_the_limit_are_452_and_logged_once(factory: Factory, heard: Heard) -> None:
    """A client that pipelines cannot know better; were it shown out, it could never send."""
    settings = server(10, hard=5, rcptto={"maxrecipients": 100, "overshoot": 400})
    async with serving(factory.uri, server=settings) as port, Dialogue(port) as client:
        for _ in range(2):
            await client.send(b"MAIL FROM:<a@sender.example>\r\n" + RCPT * 500 + b"DATA\r\n")
            replies = [(await client.reply())[0] for _ in range(502)]
            assert Counter(each[:3] for each in replies) == {"250": 101, "452": 400, "354": 1}
            assert (await client.ask(b"Subject: x\r\n\r\nb\r\n.")).startswith("250")
    assert len(heard.all("session.refused")) == 2
    assert len(factory.queue()) == 2, "one for each message: they all name the same mailbox"


async def test_an_endless_list_of_recipients_ends_the_session(factory: Factory, heard: Heard) -> None:
    settings = server(10, hard=5, rcptto={"maxrecipients": 100, "overshoot": 400})
    async with serving(factory.uri, server=settings) as port, Dialogue(port) as client:
        await client.send(b"MAIL FROM:<a@sender.example>\r\n" + RCPT * 5_000)
        said = await client.ended()
    assert said.count(b"452 4.5.3") == 414  # EHLO was one of the 10
    assert b"421 4.7.0" in said
    assert len(heard.all("session.refused")) == 15
