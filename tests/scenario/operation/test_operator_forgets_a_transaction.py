"""test_operator_forgets_a_transaction — rows locked for longer than a lease are neither sent again nor lost

Owns: the proof that sent mail that cannot be recorded keeps its lease, and does not delay other results.
See: queued/dispatch.py, heartbeat; queued/result.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

MESSAGES = 20
LEASE = {"lease": "6s"}


@pytest.mark.slow
async def test_locked_rows_are_not_sent_twice(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    # While a statement waits two seconds for a lock, no beat reaches its other rows: three seconds would be too short.
    worker = await system.worker(books.sink.port, claim=LEASE)
    second = await system.worker(books.sink.port, "second", claim=LEASE)
    async with await psycopg.AsyncConnection.connect(system.uri) as operator:
        await books.submit(smtpd, numbered(MESSAGES, box="slow1"))
        # Claimed and being sent; the operator locks one of them and leaves the transaction open.
        await system.until("SELECT count(*) > 0 FROM queue WHERE token IS NOT NULL")
        await operator.execute("SELECT FROM pillarbox.queue WHERE token IS NOT NULL ORDER BY id LIMIT 1 FOR UPDATE")
        await books.until_arrived(MESSAGES)
        await system.until("SELECT count(*) <= 1 FROM queue")
        # Each try waits two seconds for the lock: four times that is more than the lease.
        both = (worker, second)
        await eventually(
            lambda: sum(len(each.said("result.unrecorded")) for each in both) >= 4, "the result is tried four times"
        )
    await system.until_finished()
    account = books.account()
    assert (account.delivered, account.lost, account.duplicated) == (MESSAGES, 0, 0)
    assert worker.said("claim.expired") == second.said("claim.expired") == []
