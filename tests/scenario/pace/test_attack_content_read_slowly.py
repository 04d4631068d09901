"""test_attack_content_read_slowly — hosts that read content one octet a second stop no other mail

Owns: a worker that runs: twelve domains, each with a host of its own, accept a message, and so count as reached; then
    they read large messages, more than the worker may hold, octet by octet.
Guarantees: none of these attempts is cut off.
See: queued/in_flight.py; docs/explanation/admission.md, "Content that is not answered".
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

from tests.fixtures.daemons.routed import sinks
from tests.fixtures.daemons.strangers import (
    MESSAGES,
    address,
    healthy_zone,
    hosts_zone,
    seconds_to_deliver,
    worker_by_mx,
)
from tests.fixtures.peers.fake_dns import FakeDns
from tests.fixtures.peers.hostile_peer import honest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.fixtures.daemons.system import System

    type Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

BAD, HEALTHY, INFLIGHT, MORE = 12, 6, 12, 2
# Larger than the buffers of a connection on both sides.
_LARGE = MESSAGES.replace("26", "4800018").replace(r"Hello\r\n'", r"' || repeat(repeat('x', 78) || E'\r\n', 60000)")


def reads_slowly() -> Talk:
    """A host that accepts one message, and then reads content at one octet a second."""
    taken = False

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        writer.write(b"220 evil.test\r\n")
        with suppress(ConnectionError):
            while line := await reader.readline():
                writer.write(await honest(line))
                if line[:4].upper() == b"DATA":
                    for _ in range(600 if taken else 0):
                        if await reader.read(1):
                            await asyncio.sleep(1)
                    while await reader.readline() not in {b".\r\n", b""}:
                        pass
                    writer.write(b"250 2.0.0 ok\r\n")
                    taken = True
        writer.transport.abort()

    return talk


async def serve(stack: AsyncExitStack, talk: Talk, host: str, port: int) -> None:
    """Until the stack ends, with as little of a buffer as there can be."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listening.bind((host, port))
    talks = set[asyncio.Task[None]]()

    async def begun(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(talk(reader, writer))
        talks.add(task)
        await task

    server = await asyncio.start_server(begun, sock=listening, limit=1024)
    stack.callback(lambda: [task.cancel() for task in talks])
    stack.callback(server.close)


async def test_healthy_mail_is_delivered_beside_hosts_that_read_slowly(system: System) -> None:
    records = healthy_zone("good", HEALTHY) | hosts_zone("127.68", BAD)
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(FakeDns(records))
        [sink] = await stack.enter_async_context(sinks("1"))
        for n in range(1, BAD + 1):
            await serve(stack, reads_slowly(), address("127.68", n), sink.port)
        await system.rows(MESSAGES, BAD, "bad#.test")
        await worker_by_mx(system, sink.port, dns, claim={"inflight": INFLIGHT, "maxbytes": "256MiB"})
        await system.until("SELECT count(*) = %s FROM archive WHERE result = 'success'", BAD)
        for _ in range(MORE):
            await system.rows(_LARGE, BAD, "bad#.test")
        await system.until("SELECT count(*) >= %s FROM queue WHERE token IS NOT NULL", INFLIGHT)
        took = await seconds_to_deliver(system, "good", HEALTHY)
        assert took < 100, f"{took:.1f} s, and content is waited for during 180 for each 64 KiB"
        await system.until("SELECT count(*) = %s FROM attempts WHERE recipientdomain LIKE 'bad%%'", BAD)
