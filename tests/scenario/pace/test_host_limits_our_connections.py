"""test_host_limits_our_connections — a host that takes three connections at once delays and bounces no mail

Owns: the proof, with the transport's defaults: a connection that the host refuses while it serves others of ours is no
    failed try, and soon none more than it takes are opened.
See: queued/smtp/failover.py; queued/destinations/destination.py; docs/explanation/pacing.md, "Hosts that take few
    connections".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

TAKES, MESSAGES = 3, 200


async def test_no_try_fails_and_few_connections_are_refused(system: System, books: Books) -> None:
    books.sink.options = replace(books.sink.options, max_connections=TAKES)
    smtpd = await system.smtpd()
    worker = await system.worker(
        books.sink.port, transport={"feedback": {"initial": 5}, "retry": {"intervals": ["1m"]}}
    )
    await books.submit(smtpd, numbered(MESSAGES, box="slow0.05"))
    await eventually(lambda: len(books.ledger.arrived) == MESSAGES, "everything has arrived")
    await system.until_finished()
    assert books.account().clean
    assert await system.rows("SELECT outcome, count(*) FROM attempts GROUP BY 1") == [("delivered", MESSAGES)]
    assert books.sink.connections < 2 * TAKES + MESSAGES // 10
    assert worker.said("destination.dead") == []
