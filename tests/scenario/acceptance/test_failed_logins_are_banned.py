"""test_failed_logins_are_banned — all processes of a host together delay and ban an attacker

Owns: the growing delay and the ban over real connections.
See: tests/unit/smtpd/test_failures.py for the arithmetic; tests/unit/smtpd/test_authenticate.py for effects that are
    not visible to a client.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from time import monotonic
from typing import TYPE_CHECKING, Any

from scripts.access.user_store import FileStore
from shared.config.smtpd.users import UserEntry
from tests.fixtures.daemons.login import HASH, PASSWORD
from tests.fixtures.daemons.serving import Dialogue
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import Daemon, System

PROCESSES = 3


async def served(system: System, **failures: Any) -> Daemon:
    """Several processes that exempt no client and allow AUTH without TLS, which does not matter here."""
    file = system.folder / "users.yaml"
    FileStore(file).add("alice", UserEntry(argon2=HASH))
    return await system.smtpd(
        processes=PROCESSES,
        authentication={
            "file": str(file),
            "tlsonly": False,
            "failures": {"trusted": [], "delay": "0s", **failures},
        },
    )


async def login(smtpd: Daemon, name: str, password: str) -> str:
    """One login on a new connection; the reply."""
    async with Dialogue(smtpd.address[1]) as client:
        return await client.ask(b"AUTH PLAIN " + b64encode(f"\0{name}\0{password}".encode()))


async def test_a_ban_is_counted_by_all_processes_together(system: System) -> None:
    smtpd = await served(system, ban=7)
    said = [(await login(smtpd, "alice", "wrong"))[:3] for _ in range(12)]
    assert said == ["535"] * 8 + ["421"] * 4
    for _ in range(2 * PROCESSES):  # in every process, even with the right password
        assert (await login(smtpd, "alice", PASSWORD)).startswith("421 4.7.0 ")
    assert (await login(smtpd, "nobody", "wrong")).startswith("421 4.7.0 "), "it is the address that is banned"
    assert {line["user"] for line in await smtpd.until_said("authenticate.banned")} == {"alice"}
    assert PASSWORD not in smtpd.log


async def test_a_ban_ends(system: System) -> None:
    smtpd = await served(system, ban=1, within="1s", bantime="1s")
    for _ in range(3):
        await login(smtpd, "alice", "wrong")
    began = monotonic()
    while (reply := await login(smtpd, "alice", PASSWORD)).startswith("4"):
        assert monotonic() - began < PATIENCE
    assert reply.startswith("235")


async def test_failed_logins_are_delayed_longer_each_time_without_delaying_others(system: System) -> None:
    smtpd = await served(system, ban=0, delay="1s", maxdelay="2s")
    async with Dialogue(smtpd.address[1]) as attacker, Dialogue(smtpd.address[1]) as other:
        wrong = b"AUTH PLAIN " + b64encode(b"\0alice\0wrong")
        for least in (1.0, 2.0, 2.0):
            began = monotonic()
            await attacker.send(wrong + b"\r\n")
            refused = asyncio.create_task(attacker.reply())
            assert (await other.ask(b"NOOP")).startswith("250")
            assert not refused.done(), "the other one waited too"
            assert (await refused)[0].startswith("535")
            assert monotonic() - began >= least
    seconds = [float(line["seconds"]) for line in smtpd.said("authenticate.refused")]
    assert seconds == [1.0, 2.0, 2.0]


async def test_all_processes_send_the_same_salt_for_an_unknown_user(system: System) -> None:
    smtpd = await served(system, ban=0)
    salts = set()
    for _ in range(4 * PROCESSES):
        async with Dialogue(smtpd.address[1]) as client:
            reply = await client.ask(b"AUTH SCRAM-SHA-256 " + b64encode(b"n,,n=nobody,r=x"))
            assert reply.startswith("334 ")
            salts.add(b64decode(reply[4:]).split(b",")[1])
            assert (await client.ask(b"*")).startswith("501")
    assert len(salts) == 1
