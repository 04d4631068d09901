"""test_stale_claim_is_refused — a worker that slept through its lease cannot record over the one that took over

Owns: the fence: the result of a lost claim changes no row, is said in the log, and leaves its attempt.
See: sql/queries/result_record_if_claimed.sql; sql/queries/claim.sql.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.submit import Books
    from tests.fixtures.system import System


@pytest.mark.slow
async def test_the_second_workers_result_stands(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    first = await system.worker(books.sink.port, "first")
    await books.submit(smtpd, numbered(1, box="slow1"))
    await books.until_arrived(1)
    first.signal(signal.SIGSTOP)  # the sink has the message; its reply will find nobody awake
    second = await system.worker(books.sink.port, "second")
    await books.until_arrived(2)
    await system.until_finished()
    [archived] = await system.rows("SELECT result, split_part(worker, '@', 1), retry_count FROM archive")
    assert archived == ("success", "second", 2)
    assert len(second.said("claim.expired")) == 1
    assert first.said("claim.lost") == []

    first.signal(signal.SIGCONT)
    [lost] = await first.until_said("claim.lost")
    assert lost["recipient_id"] == second.said("claim.expired")[0]["recipient_id"]
    assert await system.rows("SELECT result, split_part(worker, '@', 1), retry_count FROM archive") == [archived]
    assert await system.value("SELECT count(*) FROM queue") == 0
    attempts = await system.rows(
        "SELECT split_part(worker, '@', 1), retry_count, outcome = 'lease_expired' FROM attempts ORDER BY 1, 2, 3"
    )
    assert attempts == [("first", 1, False), ("first", 1, True), ("second", 2, False)]
    assert await first.stop() == 0
    account = books.account()
    assert (account.delivered, account.lost, account.duplicated) == (1, 0, 1)


@pytest.mark.slow
async def test_a_late_result_does_not_end_the_try_that_is_under_way(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    first = await system.worker(books.sink.port, "first")
    await books.submit(smtpd, numbered(1, box="slow2"))
    await books.until_arrived(1)
    first.signal(signal.SIGSTOP)
    await system.worker(books.sink.port, "second")
    await books.until_arrived(2)
    first.signal(signal.SIGCONT)  # the sink keeps the second worker waiting for two seconds
    await first.until_said("claim.lost")
    held_by = "SELECT split_part(worker, '@', 1), retry_count, token IS NOT NULL FROM queue"
    assert await system.rows(held_by) == [("second", 2, True)]
    assert await system.value("SELECT count(*) FROM archive") == 0

    await system.until_finished()
    assert await system.rows("SELECT result, split_part(worker, '@', 1) FROM archive") == [("success", "second")]
    assert books.account().duplicated == 1
