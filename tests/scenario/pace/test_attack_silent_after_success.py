"""test_attack_silent_after_success — hosts that take one message and are silent afterwards do not stop other mail

Owns: a worker that runs: sixty domains, each with a host of its own, accept a message, and so count as reached; then
    they have more mail than the worker may hold, and never answer MAIL again.
See: queued/waiting/watchdog.py, relieve; docs/explanation/admission.md, "Unproven destinations".
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
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
from tests.fixtures.peers.hostile_peer import honest, hostile

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.fixtures.daemons.system import System

BAD, HEALTHY, INFLIGHT = 60, 20, 200


def silent_after_success() -> Callable[[bytes], Awaitable[bytes]]:
    """The answers of such a host."""
    taken = False

    async def answer(line: bytes) -> bytes:
        nonlocal taken
        if taken and line[:4].upper() == b"MAIL":
            await asyncio.Event().wait()
        taken = taken or line.strip() == b"."
        return await honest(line)

    return answer


async def test_healthy_mail_is_delivered_beside_hosts_that_fell_silent(system: System) -> None:
    records = healthy_zone("good", HEALTHY) | hosts_zone("127.66", BAD)
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(FakeDns(records))
        [sink] = await stack.enter_async_context(sinks("1"))
        for n in range(1, BAD + 1):
            await stack.enter_async_context(hostile(silent_after_success(), host=address("127.66", n), port=sink.port))
        await system.rows(MESSAGES, BAD, "bad#.test")
        await worker_by_mx(system, sink.port, dns, claim={"inflight": INFLIGHT})
        await system.until("SELECT count(*) = %s FROM archive WHERE result = 'success'", BAD)
        for _ in range(8):
            await system.rows(MESSAGES, BAD, "bad#.test")
        await system.until("SELECT count(*) >= %s FROM queue WHERE token IS NOT NULL", INFLIGHT * 3 // 4)
        took = await seconds_to_deliver(system, "good", HEALTHY)
        assert took < 100, f"{took:.1f} s, and MAIL is waited for during 300"
