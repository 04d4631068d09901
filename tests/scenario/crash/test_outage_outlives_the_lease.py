"""test_outage_outlives_the_lease — PostgreSQL is down for longer than a lease: mail sent meanwhile is not sent again

Owns: row 17 of the crash table beyond a lease, with a whole worker; its log of each failure.
See: tests/integration/result/test_results_before_claims.py for each part of it; sql/README.md, "Crash table".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scripts.sink.server import Sink
from tests.fixtures.daemons.submit import Books, numbered
from tests.fixtures.peers.proxy import relaying
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from scripts.sink.records import Received
    from tests.fixtures.daemons.system import Daemon, System

BEFORE, AFTER = 40, 20


@pytest.mark.slow
async def test_each_message_arrives_once(system: System) -> None:
    may_answer = asyncio.Event()
    asked = 0

    async def take(record: Received) -> None:
        nonlocal asked
        asked += 1
        await may_answer.wait()
        books.arrived(record)

    books = Books(Sink(keep_content=True, callback=take))
    async with books.sink, relaying(system.uri) as proxy:
        smtpd = await system.smtpd()
        worker = await system.worker(
            books.sink.port,
            environment={"database": {"uri": proxy.uri}},
            claim={"lease": "4s"},
            transport={"concurrency": BEFORE, "feedback": {"initial": BEFORE}},
        )
        pid = worker.pid
        await books.submit(smtpd, numbered(BEFORE))
        await eventually(lambda: asked == BEFORE, "every message is with the peer")
        proxy.refuse = True
        proxy.cut()
        may_answer.set()
        await books.until_arrived(BEFORE)
        await system.until("SELECT count(*) = %s FROM queue WHERE lease_until < now()", BEFORE)
        await worker.until_said("claim.failed")
        await eventually(lambda: "no answer within 0.7 s" in errors(worker), "the heartbeat reports the fault")
        await books.submit(smtpd, numbered(AFTER, first=BEFORE))
        proxy.refuse = False
        await books.until_arrived(BEFORE + AFTER)
        await system.until_finished()
        assert (worker.pid, asked, books.account().clean) == (pid, BEFORE + AFTER, True)
        assert await system.value("SELECT count(*) FROM attempts WHERE outcome <> 'delivered'") == 0
        assert not worker.said("claim.expired")
        assert "" not in errors(worker)
        await worker.stop()


def errors(worker: Daemon) -> set[str]:
    """The logged errors of failed claims and heartbeats."""
    return {line["error"] for line in worker.said("claim.failed")}
