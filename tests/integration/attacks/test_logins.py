"""test_logins — each guessed password counts as a failure, in whatever way the connection ends

Owns: guesses without waiting for the reply, concurrent guesses, aborted SCRAM, the cost of a guess by its hash, and
    bans beside a refused reload.
See: tests/unit/smtpd/test_failures.py for the arithmetic; tests/scenario/acceptance/test_failed_logins_are_banned.py
    for processes.
"""

from __future__ import annotations

import asyncio
import threading
from base64 import b64encode
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from argon2 import PasswordHasher, extract_parameters

from shared.errors import ConfigError
from smtpd.login import passwords
from tests.fixtures.daemons.login import HASH, PASSWORD
from tests.fixtures.daemons.serving import Dialogue, configured, listening, serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

BAN = 3
WRONG = b"AUTH PLAIN " + b64encode(b"\0alice\0wrong")
RIGHT = b"AUTH PLAIN " + b64encode(b"\0alice\0" + PASSWORD.encode())


def guarded(**settings: Any) -> dict[str, Any]:
    """AUTH without TLS, and no trusted networks."""
    failures = {"trusted": [], "delay": "0s", "ban": BAN}
    return {"users": {"alice": HASH}, "tlsonly": False, "failures": failures, **settings}


async def test_disconnecting_before_the_reply_still_counts_as_a_failure(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = threading.Event()

    def verify(_known: str, _password: str) -> bool:
        assert gone.wait(20)
        return False

    monkeypatch.setattr(passwords, "verify", verify)
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


async def test_concurrent_guesses_are_limited_to_the_allowed_failures(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session begins before a ban, and holds its guess until all sessions have one."""
    tried: list[str] = []

    def verify(known: str, password: str) -> bool:
        if known == HASH:
            tried.append(password)
        return False

    monkeypatch.setattr(passwords, "verify", verify)
    async with serving(factory.uri, authentication=guarded()) as port, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Dialogue(port)) for _ in range(5 * BAN)]
        for client in clients:
            assert (await client.ask(b"AUTH LOGIN " + b64encode(b"alice"))).startswith("334")
        guess = b64encode(b"guess")
        said = await asyncio.gather(*(client.ask(guess) for client in clients))
        assert len(tried) == BAN + 1
    assert Counter(reply[:3] for reply in said) == {"535": BAN + 1, "421": 4 * BAN - 1}


async def test_concurrent_right_passwords_all_authenticate(factory: Factory) -> None:
    settings = guarded(hashing={"remembered": 0})
    async with serving(factory.uri, authentication=settings) as port, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Dialogue(port)) for _ in range(5 * BAN)]
        said = await asyncio.gather(*(client.ask(RIGHT) for client in clients))
    assert {reply[:3] for reply in said} == {"235"}


@pytest.mark.parametrize("end", ["star", "abort"])
async def test_aborting_scram_after_the_salt_is_a_failure(factory: Factory, heard: Heard, end: str) -> None:
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


#: As another system may have made it.
CHEAPER = PasswordHasher(time_cost=2, memory_cost=1024, parallelism=1).hash(PASSWORD)
NEARLY = PasswordHasher(time_cost=2).hash(PASSWORD)
DEARER = PasswordHasher(time_cost=5).hash(PASSWORD)


@pytest.mark.parametrize(
    "known",
    [
        HASH,
        CHEAPER,
        NEARLY,
        passwords.make_hash(PASSWORD),
        DEARER,
        "$argon2id$v=19$m=1,t=1,p=1$MDEyMzQ1Njc$MDEyMzQ1Njc",
        None,
    ],
    ids=["cheap", "cheaper than ours", "a little cheaper", "ours", "dearer", "that nothing matches", "unknown"],
)
async def test_a_wrong_password_costs_as_much_as_an_unknown_user(
    factory: Factory, monkeypatch: pytest.MonkeyPatch, known: str | None
) -> None:
    """The work is counted, not timed: memory times passes of each hash that is verified."""
    work: list[int] = []
    verify = passwords.verify

    def counted(of: str, password: str) -> bool:
        if of.startswith("$argon2"):
            cost = extract_parameters(of)
            work.append(cost.memory_cost * cost.time_cost)
        return verify(of, password)

    monkeypatch.setattr(passwords, "verify", counted)
    ours = 65536 * 3 if known is not DEARER else 65536 * 5
    users = {} if known is None else {"alice": known}
    async with (
        serving(factory.uri, authentication=guarded(users={"bob": HASH, **users})) as port,
        Dialogue(port) as client,
    ):
        assert (await client.ask(WRONG)).startswith("535")
        assert ours <= sum(work) <= 1.001 * ours, "a higher cost would reveal the user as well"
        if known is not None and "m=1," not in known:
            work.clear()
            assert (await client.ask(RIGHT)).startswith("235")
            assert len(work) == 1, "a right password costs one verification of its hash"


async def test_a_refused_reload_keeps_the_bans(factory: Factory, tmp_path: Path) -> None:
    """The error in the new configuration is found after half of it was applied."""
    config = configured(authentication=guarded())
    pair = {"certificate": str(tmp_path / "none.pem"), "privatekey": str(tmp_path / "none.key")}
    failures = {"trusted": [], "delay": "0s", "ban": 0}
    unusable = configured({"tls": pair}, authentication=guarded(failures=failures))
    async with listening(factory.uri, config) as (port, listeners):
        async with Dialogue(port) as client:
            for _ in range(BAN + 1):
                assert (await client.ask(WRONG)).startswith("535")
        with pytest.raises(ConfigError):
            listeners.use(unusable)
        async with Dialogue(port) as client:
            assert (await client.ask(RIGHT)).startswith("421 4.7.0")
        listeners.use(configured(authentication=guarded(failures=failures)))
        async with Dialogue(port) as client:
            assert (await client.ask(RIGHT)).startswith("235"), "an accepted reload with ban 0 lifts the ban"
