"""test_attack_silent_at_the_dot — hosts that take content and do not reply to the dot do not stop other mail

Owns: a worker that runs: sixty domains, each with a host of its own, accept a message, and so count as reached; then
    they take more mail than the worker may hold, and do not answer the final dot until healthy mail is delivered. Half
    of them take some seconds to answer RCPT, so that not all stand still when the worker first looks for such attempts.
Guarantees: none of their attempts is cut off, for the host may have the message: each is sent once.
See: queued/in_flight.py; docs/explanation/admission.md, "Content that is not answered".
"""

from __future__ import annotations

import asyncio
from collections import Counter
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

BAD, HEALTHY, INFLIGHT, MORE = 60, 20, 200, 5
SLOWLY = 6.0  # seconds: more than from one look to the next, and less than what ends an attempt


def silent_at_the_dot(answers: asyncio.Event, sent: Counter[int], host: int) -> Callable[[bytes], Awaitable[bytes]]:
    """The answers of such a host; it counts final dots."""

    async def answer(line: bytes) -> bytes:
        if host % 2 and sent[host] and line[:4].upper() == b"RCPT" and not answers.is_set():
            await asyncio.sleep(SLOWLY)
        if line.strip() == b".":
            sent[host] += 1
            if sent[host] > 1:
                await answers.wait()
        return await honest(line)

    return answer


async def test_healthy_mail_is_delivered_beside_hosts_that_do_not_answer_the_dot(system: System) -> None:
    records = healthy_zone("good", HEALTHY) | hosts_zone("127.67", BAD)
    answers, sent = asyncio.Event(), Counter[int]()
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(FakeDns(records))
        [sink] = await stack.enter_async_context(sinks("1"))
        for n in range(1, BAD + 1):
            answer = silent_at_the_dot(answers, sent, n)
            await stack.enter_async_context(hostile(answer, host=address("127.67", n), port=sink.port))
        await system.rows(MESSAGES, BAD, "bad#.test")
        await worker_by_mx(system, sink.port, dns, claim={"inflight": INFLIGHT})
        await system.until("SELECT count(*) = %s FROM archive WHERE result = 'success'", BAD)
        for _ in range(MORE):
            await system.rows(MESSAGES, BAD, "bad#.test")
        await system.until("SELECT count(*) >= %s FROM queue WHERE token IS NOT NULL", INFLIGHT * 3 // 4)
        took = await seconds_to_deliver(system, "good", HEALTHY)
        assert took < 100, f"{took:.1f} s, and the reply to the final dot is waited for during 600"
        await system.until("SELECT count(*) <= %s FROM queue WHERE token IS NOT NULL", INFLIGHT * 5 // 4)
        answers.set()
        everything = "SELECT count(*) = %s FROM archive WHERE result = 'success' AND recipientdomain LIKE 'bad%%'"
        await system.until(everything, BAD * (MORE + 1))
    assert sent.total() == BAD * (MORE + 1), "each message was sent once"
