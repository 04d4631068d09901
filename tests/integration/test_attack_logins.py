"""test_attack_logins — who guesses passwords pays for each guess, however the connection ends

Owns: guesses whose reply nobody waits for, guesses held back and sent at once, and SCRAM that is given up.
See: tests/unit/test_failures.py for the arithmetic; tests/scenario/test_failed_logins_are_banned.py for processes.
"""

from __future__ import annotations

import asyncio
import threading
from base64 import b64encode
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from smtpd import hashing
from tests.fixtures.login import HASH, PASSWORD
from tests.fixtures.serving import Dialogue, serving

if TYPE_CHECKING:
    from tests.fixtures.factory import Factory
    from tests.fixtures.heard import Heard

BAN = 3
WRONG = b"AUTH PLAIN " + b64encode(b"\0alice\0wrong")
RIGHT = b"AUTH PLAIN " + b64encode(b"\0alice\0" + PASSWORD.encode())


def guarded(**settings: Any) -> dict[str, Any]:
    """AUTH in the clear, since TLS is no part of this, and nobody trusted."""
    failures = {"trusted": [], "delay": "0s", "ban": BAN}
    return {"users": {"alice": HASH}, "tlsonly": False, "failures": failures, **settings}


async def test_hanging_up_before_the_reply_saves_no_failure(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = threading.Event()

    def verify(_known: str, _password: str) -> bool:
        assert gone.wait(20)
        return False

    monkeypatch.setattr(hashing, "verify", verify)
    async with serving(factory.uri, authentication=guarded()) as port:
        for number in range(BAN + 1):
            gone.clear()
            async with Dialogue(port) as client:
                await client.send(WRONG + b"\r\n")
                client.writer.transport.abort()
                await heard.wait("session.closed", number + 1)
            gone.set()
            await heard.wait("authenticate.refused", number + 1)
        await heard.wait("authenticate.banned")
        async with Dialogue(port) as client:
            assert (await client.ask(RIGHT)).startswith("421 4.7.0")


async def test_guesses_sent_at_once_are_no_more_than_one_may_make(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session was let in when nobody was banned, and holds its guess until all of them have one."""
    tried: list[str] = []

    def verify(_known: str, password: str) -> bool:
        tried.append(password)
        return False

    monkeypatch.setattr(hashing, "verify", verify)
    async with serving(factory.uri, authentication=guarded()) as port, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Dialogue(port)) for _ in range(5 * BAN)]
        for client in clients:
            assert (await client.ask(b"AUTH LOGIN " + b64encode(b"alice"))).startswith("334")
        guess = b64encode(b"guess")
        said = await asyncio.gather(*(client.ask(guess) for client in clients))
        assert len(tried) == BAN + 1
    assert Counter(reply[:3] for reply in said) == {"535": BAN + 1, "421": 4 * BAN - 1}


async def test_right_passwords_at_once_all_let_in(factory: Factory) -> None:
    settings = guarded(hashing={"remembered": 0})
    async with serving(factory.uri, authentication=settings) as port, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Dialogue(port)) for _ in range(5 * BAN)]
        said = await asyncio.gather(*(client.ask(RIGHT) for client in clients))
    assert {reply[:3] for reply in said} == {"235"}


@pytest.mark.parametrize("end", ["star", "abort"])
async def test_giving_up_where_scram_has_shown_its_salt_is_a_failure(factory: Factory, heard: Heard, end: str) -> None:
    first = b"AUTH SCRAM-SHA-256 " + b64encode(b"n,,n=nobody,r=x")
    async with serving(factory.uri, authentication=guarded()) as port:
        for number in range(BAN + 1):
            async with Dialogue(port) as client:
                assert (await client.ask(first)).startswith("334")
                if end == "star":
                    assert (await client.ask(b"*")).startswith("501")
                else:
                    client.writer.transport.abort()
                await heard.wait("authenticate.refused", number + 1)
        async with Dialogue(port) as client:
            assert (await client.ask(first)).startswith("421 4.7.0")
