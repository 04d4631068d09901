"""test_attack_silent_at_the_dot — hosts that take content and do not say what became of it stop no other mail

Owns: a worker that runs: sixty domains, each with a host of its own, accept a message, and so count as reached; then
    they take more mail than the worker may hold, and do not answer the final dot until healthy mail is delivered.
Guarantees: none of their attempts is cut off, for the host may have the message: each is sent once.
See: queued/aside.py; docs/explanation/admission.md, "Content that is not answered".
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from time import monotonic
from typing import TYPE_CHECKING

from tests.fixtures.daemons.routed import sinks
from tests.fixtures.peers.fake_dns import FakeDns
from tests.fixtures.peers.hostile_peer import honest, hostile
from tests.scenario.pace.test_attack_poisoned_domains import _MESSAGES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.fixtures.daemons.system import System

BAD, HEALTHY, INFLIGHT, MORE = 60, 20, 200, 8


def silent_at_the_dot(answers: asyncio.Event, sent: Counter[int], host: int) -> Callable[[bytes], Awaitable[bytes]]:
    """What such a host answers; it counts final dots."""

    async def answer(line: bytes) -> bytes:
        if line.strip() == b".":
            sent[host] += 1
            if sent[host] > 1:
                await answers.wait()
        return await honest(line)

    return answer


async def test_healthy_mail_is_delivered_beside_hosts_that_do_not_answer_the_dot(system: System) -> None:
    records = {(f"good{n}.test", "MX"): ["10 mx.good.test."] for n in range(1, HEALTHY + 1)}
    records["mx.good.test", "A"] = ["127.0.0.1"]
    for n in range(1, BAD + 1):
        records |= {(f"bad{n}.test", "MX"): [f"10 mx{n}.bad.test."], (f"mx{n}.bad.test", "A"): [f"127.0.67.{n}"]}
    answers, sent = asyncio.Event(), Counter[int]()
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(FakeDns(records))
        [sink] = await stack.enter_async_context(sinks("1"))
        for n in range(1, BAD + 1):
            answer = silent_at_the_dot(answers, sent, n)
            await stack.enter_async_context(hostile(answer, host=f"127.0.67.{n}", port=sink.port))
        await system.rows(_MESSAGES, BAD, "bad#.test")
        await system.worker(
            sink.port,
            transport={
                "connection": {"mode": "mx", "port": sink.port},
                "allow": {"private": True},
                "feedback": {"initial": 5},
            },
            routing={"dns": {"servers": [dns.where]}},
            shutdown={"timeout": "1s"},
            claim={"inflight": INFLIGHT},
        )
        await system.until("SELECT count(*) = %s FROM archive WHERE result = 'success'", BAD, limit=60)
        for _ in range(MORE):
            await system.rows(_MESSAGES, BAD, "bad#.test")
        await system.until("SELECT count(*) >= %s FROM queue WHERE token IS NOT NULL", INFLIGHT * 3 // 4)
        began = monotonic()
        await system.rows(_MESSAGES, HEALTHY, "good#.test")
        delivered = "SELECT count(*) = %s FROM archive WHERE result = 'success' AND recipientdomain LIKE 'good%%'"
        await system.until(delivered, HEALTHY, limit=90)
        took = monotonic() - began
        assert took < 40, f"{took:.1f} s, and the reply to the final dot is waited for during 600"
        await system.until("SELECT count(*) <= %s FROM queue WHERE token IS NOT NULL", INFLIGHT * 5 // 4)
        answers.set()
        everything = "SELECT count(*) = %s FROM archive WHERE result = 'success' AND recipientdomain LIKE 'bad%%'"
        await system.until(everything, BAD * (MORE + 1), limit=120)
    assert sent.total() == BAD * (MORE + 1), "each message was sent once"
