"""test_one_of_several_smtpd_processes_dies — only its sessions are lost, and no client waits long

Owns: `processes` from the clients' view: one port, any process may die, all of them stop together.
See: smtpd/process/supervisor.py; socket(7) SO_REUSEPORT.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.submit import Client, numbered, stuffed
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import Daemon, System

PROCESSES = 3
# Seconds for a new client: a Python starts and imports on a machine that is busy with the test.
NOBODY_WAITS_LONGER = 60.0


def children(smtpd: Daemon) -> dict[str, int]:
    """The process in each place, as last logged by the supervisor."""
    return {line["name"]: int(line["pid"]) for line in smtpd.said("child.started")}


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def enough(books: Books, wanted: int) -> bool:
    return books.accepted >= wanted


@asynccontextmanager
async def sessions_of(smtpd: Daemon, count: int) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        clients = [await Client.open(smtpd.address) for _ in range(count)]
        for client in clients:
            stack.push_async_callback(client.close)
        yield clients


@pytest.mark.slow
async def test_accepted_mail_is_kept_and_clients_do_not_wait_long(system: System, books: Books) -> None:
    smtpd = await system.smtpd(processes=PROCESSES)
    messages, longest = 1500, 0.0
    submitting = asyncio.create_task(books.submit(smtpd, numbered(messages), 20))
    for third in (1, 2):
        await eventually(partial(enough, books, third * messages // 3), f"{third} of 3 are accepted")
        victim = children(smtpd)["smtpd-2"]
        os.kill(victim, signal.SIGKILL)
        began = monotonic()
        # More clients than processes, so that some reach the socket of the dead one.
        for client in await asyncio.gather(*(Client.open(smtpd.address) for _ in range(4 * PROCESSES))):
            longest = max(longest, monotonic() - began)
            await client.close()
        await smtpd.until_said("child.started", PROCESSES + third)
    await submitting
    assert longest < NOBODY_WAITS_LONGER
    assert books.refusals() == set()
    assert [line["status"] for line in smtpd.said("child.died")] == ["-9", "-9"]
    stored = await system.value("SELECT count(*) FROM queue")
    assert books.accepted <= stored <= books.accepted + books.unanswered
    assert books.accepted + books.unanswered == messages
    assert await smtpd.stop() == 0
    assert all(gone(pid) for pid in children(smtpd).values())


async def test_only_the_sessions_of_the_dead_process_end(system: System) -> None:
    smtpd = await system.smtpd(processes=2)
    async with sessions_of(smtpd, 24) as clients:
        os.kill(children(smtpd)["smtpd-1"], signal.SIGKILL)
        replies = [await client.command("NOOP") for client in clients]
    assert {reply[:3] for reply in replies} == {"250", ""}, "the kernel gave all connections to one process"


async def test_several_processes_stop_like_a_single_one(system: System, books: Books) -> None:
    smtpd = await system.smtpd(processes=2)
    async with sessions_of(smtpd, 12) as clients:
        samples = list(numbered(6))
        for client, sample in zip(clients, samples, strict=False):
            [data, _] = await client.begin(sample)
            assert data.startswith("354")
            client.write(stuffed(sample.content)[:20])
        smtpd.signal(signal.SIGTERM)
        for idle in clients[6:]:
            assert (await idle.reply()).startswith("421 4.3.2")
        for client, sample in zip(clients, samples, strict=False):
            client.write(stuffed(sample.content)[20:] + b".\r\n")
            assert (await client.reply()).startswith("250 2.0.0")
            assert (await client.reply()).startswith("421 4.3.2")
    with pytest.raises(ConnectionError):
        await Client.open(smtpd.address)
    assert await smtpd.ended() == 0
    assert await system.value("SELECT count(*) FROM queue") == len(samples)
    assert smtpd.said("child.died") == []


async def test_no_process_outlives_the_supervisor(system: System) -> None:
    smtpd = await system.smtpd(processes=2)
    before = children(smtpd)
    async with sessions_of(smtpd, 1) as [client]:
        await smtpd.kill()
        assert (await client.reply()).startswith("421 4.3.2")
    await eventually(lambda: all(gone(pid) for pid in before.values()), "both children have ended")
    # The same port is free at once.
    with pytest.raises(ConnectionError):
        await Client.open(smtpd.address)


async def test_two_daemons_do_not_share_a_port_by_mistake(system: System) -> None:
    smtpd = await system.smtpd(processes=2)
    other = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _BIND, str(smtpd.address[1])), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await other.communicate()
    assert said.decode().startswith("servers[0].listeners[0]: 127.0.0.1:")
    assert "cannot listen: Address already in use by pid " in said.decode()


_BIND = """
import sys
from shared.errors import ListenFailed
from shared.config.smtpd.settings import SmtpdConfig
from smtpd.connection.sockets import bind
try:
    bind(SmtpdConfig.model_validate({"processes": 2, "servers": [{"listeners": [{"port": int(sys.argv[1])}]}]}))
except ListenFailed as error:
    print(error)
"""
