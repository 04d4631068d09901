"""test_a_million_queued_in_little_memory — a worker's memory does not grow with the queue

Owns: the proof that a worker with a long queue for many destinations that do not answer stays below 200 MB.
See: queued/in_flight.py and queued/destinations/destinations.py (the data kept in memory);
    queued/claiming/bodies.py (the budget of contents).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.routed import sinks
from tests.fixtures.peers.fake_dns import FakeDns

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import Daemon, System

MOST = 200 * 1024  # KiB resident
GOOD, DOMAINS = 1000, 1000
HOSTS = {"dead": "127.0.0.9", "good": "127.0.0.30"}
_FILL = """
WITH made AS (
    INSERT INTO pillarbox.messages (id, size, content)
    SELECT gen_random_uuid(), 26, convert_to(E'Subject: story\\r\\n\\r\\nHello\\r\\n', 'UTF8')
      FROM generate_series(1, %s)
    RETURNING id
), numbered AS (
    SELECT id, row_number() OVER () AS n FROM made
)
INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain, size, metadata, next_retry)
SELECT id, 'r' || r, %s || ((n * 7 + r) %% %s) || '.test', 26, '{"_partid": "1"}', now() - interval '1 hour'
  FROM numbered, generate_series(1, 100) AS r
"""


def peak(daemon: Daemon) -> int:
    """Its peak memory in KiB."""
    lines = Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmHWM")]
    return int(line.split()[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "count",
    [
        30_000,  # fifteen times the mail in flight
        pytest.param(
            1_000_000, marks=pytest.mark.skipif("PILLARBOX_LONG" not in os.environ, reason="PILLARBOX_LONG=1")
        ),
    ],
)
async def test_memory_does_not_grow_with_the_queue(system: System, count: int) -> None:
    zone = {(f"{kind}{n}.test", "A"): [host] for kind, host in HOSTS.items() for n in range(DOMAINS)}
    async with FakeDns(zone) as dns, sinks("30") as [sink]:
        await system.rows(_FILL, count // 100, "dead", DOMAINS)
        await system.rows(_FILL, GOOD // 100, "good", DOMAINS)
        worker = await system.worker(
            1,
            transport={
                "connection": {"mode": "mx", "port": sink.port},
                "allow": {"private": True},
                "retry": {"intervals": ["1h"]},
                "feedback": {"initial": 5, "dead": "1h"},
            },
            routing={"dns": {"servers": [dns.where]}},
            claim={"poll": "5s", "batch": 1000, "inflight": 2000},
        )
        # All of it was tried once, except mail in flight, and the good mail behind it is delivered.
        looked = "SELECT count(*) = 0 FROM queue WHERE last_error IS NULL AND token IS NULL"
        await system.until(looked, limit=180 + count / 1000)
        await system.until("SELECT count(*) = %s FROM archive", GOOD)
        assert peak(worker) < MOST
        assert sum(len(record.recipients) for record in sink.received) == GOOD
