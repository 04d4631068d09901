"""test_worker_killed_mid_run — kill -9 of a worker loses no mail, and repeats at most its mail in flight

Owns: rows 7 to 9 of the crash table: a delay of one lease, or until the worker is started again; never a loss.
See: sql/README.md, "Crash table".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

MESSAGES = 2500
INFLIGHT = 100
BOX = "slow0.02"  # a peer so slow that some mail is always in flight


@pytest.mark.slow
async def test_another_worker_delivers_the_rest_after_the_lease(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    claim = {"inflight": INFLIGHT, "batch": INFLIGHT, "lease": "6s"}
    first = await system.worker(books.sink.port, "first", claim=claim)
    submitting = asyncio.create_task(books.submit(smtpd, numbered(MESSAGES, box=BOX)))
    await books.until_arrived(MESSAGES // 4)
    await first.kill()
    # A statement it sent before its end may still be running.
    await system.until("SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pillarbox first'")
    leased = await system.value("SELECT count(*) FROM queue WHERE token IS NOT NULL")
    assert 0 < leased <= INFLIGHT

    second = await system.worker(books.sink.port, "second")
    await submitting
    await books.until_arrived(MESSAGES)
    await system.until_finished()
    account = books.account()
    assert (account.accepted, account.lost, account.altered) == (MESSAGES, 0, 0)
    assert account.duplicated <= leased
    assert len(await second.until_said("claim.expired", leased)) == leased
    expired = "SELECT count(*) FROM attempts WHERE outcome = 'lease_expired' AND uncertain AND worker LIKE 'first@%%'"
    assert await system.value(expired) == leased
    assert await system.value("SELECT count(*) FROM archive WHERE result = 'success'") == MESSAGES


@pytest.mark.slow
async def test_the_restarted_worker_delivers_the_rest(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, claim={"inflight": INFLIGHT, "batch": INFLIGHT, "lease": "3s"})
    submitting = asyncio.create_task(books.submit(smtpd, numbered(MESSAGES, box=BOX)))
    for quarter in (1, 2, 3):
        await books.until_arrived(quarter * MESSAGES // 4)
        await worker.kill()
        await worker.start()
    await submitting
    await books.until_arrived(MESSAGES)
    await system.until_finished()
    account = books.account()
    assert (account.accepted, account.lost, account.altered) == (MESSAGES, 0, 0)
    expired = await system.value("SELECT count(*) FROM attempts WHERE outcome = 'lease_expired'")
    assert account.duplicated <= expired <= 3 * INFLIGHT


@pytest.mark.slow
async def test_a_worker_that_is_started_again_does_not_wait_for_its_lease(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, claim={"inflight": INFLIGHT, "batch": INFLIGHT, "lease": "1h"})
    submitting = asyncio.create_task(books.submit(smtpd, numbered(MESSAGES // 5, box=BOX)))
    await books.until_arrived(MESSAGES // 10)
    await worker.kill()
    await system.until("SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pillarbox worker'")
    leased = await system.value("SELECT count(*) FROM queue WHERE token IS NOT NULL")
    assert 0 < leased <= INFLIGHT
    await worker.start()
    await submitting
    await books.until_arrived(MESSAGES // 5)
    await system.until_finished()
    account = books.account()
    assert (account.accepted, account.lost, account.altered) == (MESSAGES // 5, 0, 0)
    assert account.duplicated <= leased
    lost = "SELECT count(*) FROM attempts WHERE outcome = 'lease_expired' AND uncertain AND retry_count = 1"
    assert await system.value(lost) == leased
