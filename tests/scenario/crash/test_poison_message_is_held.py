"""test_poison_message_is_held — mail that kills its worker each time is held, and mail in flight beside it is not

Owns: the proof that other mail is not blamed for a worker's death: kill -9 whenever the peer gets RCPT for
    one recipient, until maintenance holds that recipient, with the reason.
See: sql/README.md, "Results" (lock_expired); queued/claiming/claim.py, suspects; maintenance.poison.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest

from scripts.demo.sample_mail import Sample
from scripts.sink.server import Sink
from tests.fixtures.daemons.submit import Books, numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import Daemon, System

INNOCENTS = 60
LIMIT = 3
POISON = "poison.greylist@hazel.example"
COMPANION = "companion@hazel.example"  # of the same message
CLAIM = {"inflight": 100, "batch": 100, "lease": "2s", "poll": "100ms"}


class Lethal(Sink):
    """A sink that kills the worker at RCPT for a recipient that it would greylist."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.worker: Daemon | None = None
        self.asked = 0
        self.killed = asyncio.Event()

    def seen_before(self, sender: str, recipient: str) -> bool:
        """Called at RCPT, before it is answered."""
        assert self.worker is not None
        self.asked += 1
        self.worker.signal(signal.SIGKILL)
        self.killed.set()
        return super().seen_before(sender, recipient)


async def restart_until_held(system: System, sink: Lethal, worker: Daemon) -> None:
    """Restart the worker whenever it dies, as a supervisor does."""

    async def restart() -> None:
        while True:
            await sink.killed.wait()
            await worker.ended()
            sink.killed.clear()
            await worker.start()

    restarting = asyncio.create_task(restart())
    await system.until("SELECT count(*) > 0 FROM queue WHERE status = 'HOLD'")
    restarting.cancel()


@pytest.mark.slow
async def test_only_the_poison_message_is_held_and_the_rest_is_delivered(system: System) -> None:
    sink = Lethal(keep_content=True)
    books = Books(sink)
    sink._callback = books.arrived
    async with sink:
        smtpd = await system.smtpd()
        poison = Sample("poison@origin.example", (POISON, COMPANION), b"Subject: poison\r\n\r\nIt kills.\r\n")
        await books.submit(smtpd, [poison], sessions=1)
        await books.submit(smtpd, numbered(INNOCENTS, box="slow0.05"))
        sink.worker = worker = await system.worker(
            sink.port,
            claim=CLAIM,
            maintenance={"interval": "200ms", "poison": LIMIT},
            transport={"retry": {"intervals": ["1s"]}},
        )
        await restart_until_held(system, sink, worker)
        await system.until("SELECT count(*) = 1 FROM queue")

        [held] = await system.rows(
            "SELECT recipientlocalpart, status::text, metadata->>'_quarantineid', token, last_error, retry_count"
            " FROM queue"
        )
        assert held[:4] == ("poison.greylist", "HOLD", "poison", None)
        # A claim may precede the round of maintenance that would have held it; it is then alone, and counted.
        deaths = sink.asked
        assert deaths >= LIMIT
        assert held[4].startswith(f"held: {deaths} claims in a row ended without a result, the last by worker@")
        assert held[5] == deaths
        tries = "SELECT outcome, uncertain FROM attempts a JOIN queue q ON a.queue__id = q.id ORDER BY a.id"
        assert await system.rows(tries) == [("lease_expired", True)] * deaths

        expired = await system.value(
            "SELECT count(*) FROM attempts WHERE outcome = 'lease_expired' AND queue__id NOT IN (SELECT id FROM queue)"
        )
        assert expired > 0, "no other mail was in flight"
        delivered = {recipient for _, recipient in books.ledger.arrived}
        assert delivered == {recipient for _, recipient in books.ledger.accepted} - {POISON}
        assert books.arrivals - len(delivered) <= expired
        assert await system.value("SELECT count(*) FROM archive WHERE result = 'success'") == INNOCENTS + 1

        await system.rows("UPDATE queue SET status = 'DELETE'")
        await system.until_finished()
        assert await system.rows("SELECT result FROM archive WHERE recipientlocalpart = 'poison.greylist'") == [
            ("lock_expired",)
        ]
        assert sink.asked == deaths
