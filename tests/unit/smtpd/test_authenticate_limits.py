"""test_authenticate_limits — the cost of a login, the effect of failures, and logins while a component of ours is down

Owns: proofs about the bounds of smtpd/login/authenticate.py; test_authenticate.py has the accepted and refused logins.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from smtpd.envelope.client import User
from smtpd.login import passwords
from smtpd.login.authenticate import AuthResult
from smtpd.login.users import UsersUnavailable
from tests.fixtures.daemons.login import (
    ALICE,
    PASSWORD,
    KnownUsers,
    authentication,
    client,
    log_in,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.fixtures.heard import Heard


async def test_an_unavailable_user_table_is_454(tmp_path: Path, heard: Heard) -> None:
    class Gone(KnownUsers):
        async def find(self, name: str) -> User | None:
            raise UsersUnavailable

    async with authentication(tmp_path, known=Gone(), failures={"ban": 1, "delay": "0s"}) as auth:
        for _ in range(3):  # not a failure of the client: it causes no ban
            assert (await log_in(auth, "alice", PASSWORD)).reply == "454 4.7.0 Temporary authentication failure"


async def test_a_flood_of_logins_is_454_and_does_not_block_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    going_on = threading.Event()
    hashing_now: set[int] = set()

    def verify(known: str, password: str) -> bool:
        hashing_now.add(threading.get_ident())
        assert going_on.wait(30)
        return True

    monkeypatch.setattr(passwords, "verify", verify)
    async with authentication(tmp_path, ALICE, hashing={"threads": 2, "waiting": 3}) as auth:
        logins = [asyncio.create_task(log_in(auth, "alice", f"guess {number}")) for number in range(20)]
        done, waiting = await asyncio.wait(logins, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 15:
            more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        assert {login.result().reply for login in done} == {"454 4.7.0 Too many logins at once, try again"}
        assert len(waiting) == 5
        going_on.set()
        assert {(await login).reply[:3] for login in waiting} == {"235"}
    assert len(hashing_now) <= 2
    assert len(heard.all("authenticate.busy")) == 15


async def test_a_right_password_is_cached_for_the_configured_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KnownUsers(ALICE)
    async with authentication(tmp_path, known=known) as auth:
        assert (await log_in(auth, "alice", PASSWORD)).user == ALICE
        with monkeypatch.context() as patch:
            patch.setattr(passwords, "verify", lambda known, password: False)
            assert (await log_in(auth, "alice", PASSWORD)).user == ALICE, "not hashed again"
            assert (await log_in(auth, "alice", "wrong")).user is None
            # Another password means another hash, and the cached password is no longer right.
            known.users["alice"] = replace(ALICE, argon2=passwords.make_hash("other"))
            assert (await log_in(auth, "alice", PASSWORD)).user is None
    async with authentication(tmp_path, ALICE, hashing={"remembered": 0}) as auth:
        assert (await log_in(auth, "alice", PASSWORD)).user == ALICE
        monkeypatch.setattr(passwords, "verify", lambda known, password: False)
        assert (await log_in(auth, "alice", PASSWORD)).user is None


async def test_a_ban_does_not_reveal_whether_the_user_exists(tmp_path: Path, heard: Heard) -> None:
    for name in ("alice", "nobody"):
        async with authentication(tmp_path, ALICE, failures={"delay": "0s", "ban": 2}) as auth:
            assert [(await log_in(auth, name, "wrong")).reply[:3] for _ in range(3)] == ["535"] * 3
            at_the_address = await log_in(auth, name, PASSWORD)
            assert at_the_address == AuthResult("421 4.7.0 Too many failed logins, try again later", close=True)
            assert await auth.banned(client())
            beside_it = await log_in(auth, name, PASSWORD, at=client("192.0.2.77"))
            assert beside_it == AuthResult("454 4.7.0 Too many failed logins, try again later")
            elsewhere = await log_in(auth, name, PASSWORD, at=client("198.51.100.1"))
            assert elsewhere.reply[:3] == ("235" if name == "alice" else "535")
    assert len(heard.all("authenticate.banned")) == 2


async def test_our_own_faults_and_right_passwords_cause_no_ban(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    known = KnownUsers(ALICE)
    async with authentication(tmp_path, known=known, failures={"delay": "0s", "ban": 1}) as auth:
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            for _ in range(5):
                assert (await log_in(auth, "alice", PASSWORD, mechanism)).user == ALICE
        with monkeypatch.context() as patch:

            async def find(_name: str) -> User | None:
                raise UsersUnavailable

            patch.setattr(known, "find", find)
            for _ in range(5):
                assert (await log_in(auth, "alice", PASSWORD)).reply.startswith("454")
        assert (await log_in(auth, "alice", PASSWORD)).user == ALICE


async def test_a_trusted_proxy_names_a_known_or_new_user(tmp_path: Path) -> None:
    off = replace(ALICE, name="off", disabled=True)
    async with authentication(tmp_path, ALICE, off) as auth:
        assert await auth.by_word("a\u00adlice") == ALICE
        assert await auth.by_word("off") is None
        assert await auth.by_word("somebody") == User("somebody")


async def test_only_a_failed_login_is_delayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("smtpd.login.authenticate.asyncio.sleep", sleep)
    async with authentication(tmp_path, ALICE, failures={}) as auth:
        for _ in range(6):
            await log_in(auth, "alice", "wrong")
        assert waited == [1, 2, 4, 8, 10, 10]
        await log_in(auth, "alice", PASSWORD)
        assert len(waited) == 6
