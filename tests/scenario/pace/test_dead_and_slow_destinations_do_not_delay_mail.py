"""test_dead_and_slow_destinations_do_not_delay_mail — two bad destinations do not delay a thousand good ones

Owns: the proof that a destination that refuses connections and one that takes ten minutes for each reply, both with
    more mail than one worker has room for and all of it due earlier, do not slow other mail down.
See: queued/destinations/destinations.py; docs/explanation/pacing.md.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from tests.fixtures.daemons.routed import sinks
from tests.fixtures.peers.fake_dns import FakeDns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.daemons.system import System

GOOD, BAD = 1000, 1500
HOSTS = [str(number) for number in range(20, 30)]
REPLY = 600.0  # seconds, longer than any test waits for the good mail
_MESSAGES = """
WITH made AS (
    INSERT INTO pillarbox.messages (id, size, content)
    SELECT gen_random_uuid(), 26, convert_to(E'Subject: story\\r\\n\\r\\nHello\\r\\n', 'UTF8')
      FROM generate_series(1, %s)
    RETURNING id
)
INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain, size, metadata, next_retry)
SELECT id, 'r' || n, replace(%s, '#', n::text), 26, '{"_partid": "1"}', now() - %s::interval
  FROM (SELECT id, row_number() OVER () AS n FROM made) AS numbered
"""


@asynccontextmanager
async def slow_host(address: str, port: int) -> AsyncIterator[set[asyncio.Task[None]]]:
    """Replies to everything after half a minute; yields the sessions begun."""
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        with suppress(ConnectionError, asyncio.CancelledError):
            reply = b"220 slow.test\r\n"
            while reply:
                await asyncio.sleep(REPLY)
                writer.write(reply)
                reply = b"250 ok\r\n" if await reader.readline() else b""
        writer.transport.abort()

    server = await asyncio.start_server(talk, address, port)
    try:
        yield talks
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await server.wait_closed()


async def deliver(system: System, dns: FakeDns, port: int, name: str) -> None:
    """Have a worker deliver all the good mail."""
    await system.rows(_MESSAGES, GOOD, "good#.test", "1 minute")
    worker = await system.worker(
        port,
        name,
        transport={
            "connection": {"mode": "mx", "port": port},
            "allow": {"private": True},
            "feedback": {"initial": 5},
            "retry": {"intervals": ["1m"]},
        },
        routing={"dns": {"servers": [dns.where]}},
        claim={"poll": "5s"},
        shutdown={"timeout": "1s"},
    )
    good = "SELECT count(*) = %s FROM archive WHERE result = 'success' AND recipientdomain LIKE 'good%%'"
    await system.until(good, GOOD * len(system.daemons))
    await worker.stop()


async def test_mail_to_good_destinations_is_not_delayed(system: System) -> None:
    zone = {(f"good{n}.test", "MX"): [f"10 mx{HOSTS[n % len(HOSTS)]}.test."] for n in range(1, GOOD + 1)}
    zone |= {(f"mx{host}.test", "A"): [f"127.0.0.{host}"] for host in HOSTS}
    zone |= {("dead.test", "MX"): ["10 nobody.test."], ("slow.test", "MX"): ["10 snail.test."]}
    zone |= {("nobody.test", "A"): ["127.0.0.9"], ("snail.test", "A"): ["127.0.0.8"]}
    async with FakeDns(zone) as dns, sinks(*HOSTS) as (first, *others):
        await deliver(system, dns, first.port, "alone")
        async with slow_host("127.0.0.8", first.port) as talks:
            await system.rows(_MESSAGES, BAD, "slow.test", "1 hour")
            await system.rows(_MESSAGES, BAD, "dead.test", "1 hour")
            await deliver(system, dns, first.port, "beside")
            assert 1 <= len(talks) <= 5, "the slow one was not asked, or by more than a new destination gets"
    assert sum(len(sink.received) for sink in (first, *others)) == 2 * GOOD
    waiting = "SELECT count(*) FROM queue WHERE token IS NULL AND retry_count = 0 AND last_error LIKE %s"
    assert await system.value(waiting, "waiting: dead.test does not answer: %") > BAD / 2
    assert await system.value(waiting, "waiting: 5 attempts under way to slow.test") > BAD / 2
    # Of the dead one's mail only the first attempts were made.
    assert await system.value("SELECT count(*) FROM attempts WHERE recipientdomain = 'dead.test'") <= 10
