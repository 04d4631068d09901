"""test_repartition_under_load — five repartitionings while mail flows do not disturb it

Owns: the guarantee of `pillarbox partitions`: no loss, no duplicate, no claim or COPY delayed for a second.
See: sql/README.md, "Repartitioning".
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from queued.claiming.claim import NO_FLOORS, NOTHING_LOST
from shared.postgres import database
from tests.fixtures.daemons.submit import Tap
from tests.fixtures.database.partitions import configure, pillarbox
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

SESSIONS = 6
BETWEEN = 150  # messages that must arrive before the next change, so that each meets mail under way
LONGEST = 10.0  # seconds that a claim or a COPY may be held up, ten times what it is on a busy machine
WAITING = 3000  # recipients that are not due, so that there is something to copy
CHANGES = (
    ("split", "123", "into", "a=1", "b=2,3"),
    ("move", "3", "456"),
    ("move", "6", "def"),
    ("merge", "a", "b", "456", "into", "all"),
    ("apply",),
)


@dataclass
class Pulse:
    """Measures the workers' claim on an empty queue, repeatedly."""

    uri: str
    longest: float = 0.0
    beats: int = 0
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        connection = await database.connect(self.uri, "pulse")
        values: dict[str, Any] = {"now": None, **NO_FLOORS, "batch": 0, "ordinary": 0, "retried": 0}
        values |= {"worker": "pulse", "lease": timedelta(0), "suspects": False, "token": 1}
        while not self.stopped.is_set():
            began = monotonic()
            taken = await database.fetch_where(connection, "claim", "true", NOTHING_LOST, **values)
            assert taken == []
            self.longest = max(self.longest, monotonic() - began)
            self.beats += 1
        await connection.close()


@pytest.mark.slow
async def test_no_mail_is_lost_duplicated_or_delayed(system: System, books: Books, tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    configure(folder, system.uri, LEAVES)
    smtpd = await system.smtpd()
    low = await system.worker(books.sink.port, "low", "metadata->>'_partid' IN ('1', '2', '3')")
    high = await system.worker(
        books.sink.port,
        "high",
        "metadata->>'_partid' IN ('4', '5', '6') OR metadata->>'_partid' IS NULL",
    )
    await wait_for_later(system)

    tap, pulse = Tap(), Pulse(system.uri)
    submitting = asyncio.create_task(books.submit(smtpd, tap, SESSIONS))
    beating = asyncio.create_task(pulse.run())
    for words in CHANGES:
        await books.until_arrived(books.arrivals + BETWEEN)
        assert await asyncio.to_thread(pillarbox, folder, *words, "--yes") == 0, words
    await books.until_arrived(books.arrivals + BETWEEN)
    tap.open = False
    await submitting
    pulse.stopped.set()
    await beating
    await system.until("SELECT count(*) = %s FROM queue", WAITING)
    await books.until_arrived(books.accepted)

    assert str(books.account()) == f"accepted={books.accepted} delivered={books.accepted} lost=0 duplicated=0 altered=0"
    assert books.refusals() == set()
    for worker in (low, high):
        assert worker.said("claim.lost") == worker.said("claim.expired") == worker.said("claim.failed") == []
    copies = [float(group["seconds"]) for group in smtpd.said("spool.group")]
    assert pulse.beats > 100
    assert pulse.longest < LONGEST
    assert max(copies) < LONGEST

    found = dict(
        await system.rows(
            """SELECT c.relname::text, pg_get_expr(c.relpartbound, c.oid)
                 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'queue_def'::regclass"""
        )
    )
    assert found.keys() == {"queue_def_123", "queue_def_456", "queue_def_def"}
    assert found["queue_def_123"] == "FOR VALUES IN ('1', '2', '3')"
    assert await system.value("SELECT sum(refcount) FROM refcounts") == WAITING
    assert await system.value("SELECT count(DISTINCT id) FROM queue") == WAITING


async def wait_for_later(system: System) -> None:
    """Mail in every partition that is not due before the test ends."""
    await system.rows("INSERT INTO messages (id, size, content) VALUES (gen_random_uuid(), 1, 'x')")
    await system.rows(
        """INSERT INTO queue (messages__id, recipientlocalpart, recipientdomain, metadata, next_retry)
           SELECT (SELECT id FROM messages LIMIT 1), 'later', 'example.com',
                  jsonb_build_object('_partid', (n %% 7)::text), now() + interval '1 day'
             FROM generate_series(1, %s) AS n""",
        WAITING,
    )
