"""test_rates_are_exact_across_processes — all smtpd processes of a host share one count for each limit

Owns: every limit of `rates` from the clients' view, counted by the supervisor.
See: smtpd/rates/limits.py, smtpd/rates/server.py; anvil(8).
"""

from __future__ import annotations

import os
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from tests.fixtures.daemons.serving import Dialogue
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import Daemon, System

PROCESSES = 3


async def limited(system: System, **rates: Any) -> Daemon:
    """Several processes that exempt no client."""
    return await system.smtpd(processes=PROCESSES, rates={"exempt": [], **rates})


async def greeting(smtpd: Daemon) -> str:
    async with Dialogue(smtpd.address[1], ehlo=None) as client:
        return client.greeting[0]


async def greeted(smtpd: Daemon) -> bool:
    return (await greeting(smtpd)).startswith("220")


async def test_the_limit_of_sessions_is_exact(system: System) -> None:
    smtpd = await limited(system, address={"sessions": 8})
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Dialogue(smtpd.address[1])) for _ in range(8)]
        for _ in range(2 * PROCESSES):
            assert (await greeting(smtpd)).startswith("421 4.7.0")
        assert (await clients[0].ask(b"QUIT")).startswith("221")
        await eventually(lambda: greeted(smtpd), "the ended session is released")
    refused = [
        line
        for line in await smtpd.until_said("session.refused", 2 * PROCESSES)
        if line["reply"].startswith("421 4.7.0")
    ]
    assert len(refused) >= 2 * PROCESSES


async def test_sessions_of_a_dead_process_are_released(system: System) -> None:
    smtpd = await limited(system, address={"sessions": 6})
    async with AsyncExitStack() as stack:
        for _ in range(6):
            await stack.enter_async_context(Dialogue(smtpd.address[1]))
        assert (await greeting(smtpd)).startswith("421 4.7.0")
        for line in await smtpd.until_said("child.started", PROCESSES):
            os.kill(int(line["pid"]), signal.SIGKILL)
        await eventually(lambda: greeted(smtpd), "all sessions have ended")


async def test_the_limit_of_connections_is_exact(system: System) -> None:
    smtpd = await limited(system, window="1h", network={"connections": 5})
    found = [(await greeting(smtpd))[:9] for _ in range(5 + 2 * PROCESSES)]
    assert found == ["220 mx.te"] * 5 + ["421 4.7.0"] * (2 * PROCESSES)


async def test_the_limit_of_messages_is_exact(system: System) -> None:
    smtpd = await limited(system, window="1h", address={"messages": 7})
    replies: list[str] = []
    for _ in range(3 * PROCESSES):
        async with Dialogue(smtpd.address[1]) as client:
            replies.append((await client.ask(b"MAIL FROM:<a@sender.example>"))[:9])
            if replies[-1] == "250 2.1.0":
                assert await client.ask(b"RCPT TO:<b@example.com>") == "250 2.1.5 Ok"
                assert (await client.data()).startswith("250")
    assert replies == ["250 2.1.0"] * 7 + ["450 4.7.1"] * (3 * PROCESSES - 7)


async def test_the_limit_of_recipients_is_exact(system: System) -> None:
    smtpd = await limited(system, window="1h", address={"recipients": 10})
    replies: list[str] = []
    for _ in range(PROCESSES):
        async with Dialogue(smtpd.address[1]) as client:
            await client.ask(b"MAIL FROM:<a@sender.example>")
            replies += [(await client.ask(b"RCPT TO:<b@example.com>"))[:9] for _ in range(5)]
    assert replies == ["250 2.1.5"] * 10 + ["450 4.7.1"] * 5


async def test_trusted_networks_are_exempt_by_default(system: System) -> None:
    smtpd = await system.smtpd(processes=2, rates={"address": {"sessions": 1, "connections": 1, "messages": 1}})
    async with AsyncExitStack() as stack:
        for _ in range(6):
            client = await stack.enter_async_context(Dialogue(smtpd.address[1]))
            assert (await client.submit()).startswith("250")


async def test_an_unavailable_count_refuses_no_client(system: System) -> None:
    smtpd = await limited(system, address={"sessions": 50})
    smtpd.signal(signal.SIGSTOP)  # the supervisor, which counts
    try:
        assert await greeted(smtpd)
    finally:
        smtpd.signal(signal.SIGCONT)
    await smtpd.until_said("rates.unanswered")
