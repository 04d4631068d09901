"""test_stale_claim_is_refused — a worker that lost its claim cannot overwrite the new owner's result

Owns: the fence, for a stopped worker and for one without a connection to PostgreSQL: the row
    belongs to the last claim, and the other worker logs its result.
See: sql/queries/delivery/result.sql, result_record_if_claimed; sql/queries/delivery/claim.sql;
    queued/claiming/claim.py, Lease.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.peers.proxy import relaying

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System


FENCED = "SELECT split_part(worker, '@', 1), retry_count, outcome = 'lease_expired' FROM attempts ORDER BY 1, 2, 3"
SHORT = {"lease": "6s"}  # of the first worker; the second's outlasts the test
ARCHIVED = "SELECT result, split_part(worker, '@', 1), retry_count FROM archive"


@pytest.mark.slow
async def test_a_worker_stopped_for_longer_than_its_lease_ends_its_attempt(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    first = await system.worker(books.sink.port, "first", claim=SHORT)
    await books.submit(smtpd, numbered(1, box="slow3"))
    await books.until_arrived(1)
    first.signal(signal.SIGSTOP)  # the sink has the message; the worker is stopped before the reply
    second = await system.worker(books.sink.port, "second")
    await books.until_arrived(2)
    await system.until_finished()
    assert await system.rows(ARCHIVED) == [("success", "second", 2)]
    assert len(second.said("claim.expired")) == 1
    assert first.said("claim.ended") == []

    first.signal(signal.SIGCONT)
    await first.until_said("claim.ended")
    assert await first.stop() == 0
    assert await system.rows(ARCHIVED) == [("success", "second", 2)]
    assert await system.rows(FENCED) == [("first", 1, True), ("second", 2, False)]
    account = books.account()
    assert (account.delivered, account.lost, account.duplicated) == (1, 0, 1)


@pytest.mark.slow
async def test_a_result_recorded_after_the_lease_is_refused(system: System, books: Books) -> None:
    async with relaying(system.uri) as proxy:
        smtpd = await system.smtpd()
        environment = {"database": {"uri": proxy.uri}}
        first = await system.worker(books.sink.port, "first", claim=SHORT, environment=environment)
        await books.submit(smtpd, numbered(1, box="slow1"))
        await books.until_arrived(1)
        proxy.refuse = True
        proxy.cut()  # heartbeats and the result do not get through
        second = await system.worker(books.sink.port, "second")
        await books.until_arrived(2)
        await system.until_finished()
        assert first.said("claim.lost") == []

        proxy.refuse = False
        [lost] = await first.until_said("claim.lost")
        assert lost["recipient_id"] == second.said("claim.expired")[0]["recipient_id"]
        assert await system.rows(ARCHIVED) == [("success", "second", 2)]
        assert await system.value("SELECT count(*) FROM queue") == 0
        assert await system.rows(FENCED) == [("first", 1, False), ("first", 1, True), ("second", 2, False)]
        assert books.account().duplicated == 1
        await first.stop()


@pytest.mark.slow
async def test_a_late_result_does_not_end_the_running_attempt(system: System, books: Books) -> None:
    async with relaying(system.uri) as proxy:
        smtpd = await system.smtpd()
        environment = {"database": {"uri": proxy.uri}}
        first = await system.worker(books.sink.port, "first", claim=SHORT, environment=environment)
        await books.submit(smtpd, numbered(1, box="slow2"))
        await books.until_arrived(1)
        proxy.refuse = True
        proxy.cut()
        await system.worker(books.sink.port, "second")
        await books.until_arrived(2)
        proxy.refuse = False
        await first.until_said("claim.lost")
        # The second try takes two seconds; it was in flight when the first one's result came, or has just ended.
        await system.until_finished()
        assert await system.rows(ARCHIVED) == [("success", "second", 2)]
        assert books.account().duplicated == 1
        await first.stop()
