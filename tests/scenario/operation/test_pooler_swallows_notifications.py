"""test_pooler_swallows_notifications — behind a real PgBouncer in transaction mode mail flows, and the log says how

Owns: the proof of docs/explanation/wake-up.md about transaction poolers.
See: pgbouncer(5), pool_mode; shared/postgres/wakeup.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.peers.pooler import pooling

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import Daemon, System

MESSAGES = 60
SELDOM = {"poll": "30m"}  # with polls this rare, only a wake-up delivers


def by_way_of(uri: str) -> dict[str, Any]:
    return {"environment": {"database": {"uri": uri}}}


async def delivered(system: System, books: Books, smtpd: Daemon) -> None:
    # Several rounds, because the driver would prepare repeated queries.
    for first in range(0, MESSAGES, 10):
        await books.submit(smtpd, numbered(10, first=first))
        await books.until_arrived(first + 10)
    await system.until_finished()
    assert books.account().clean, books.account()


def untroubled(*daemons: Daemon) -> None:
    for daemon in daemons:
        for event in ("claim.failed", "result.unrecorded", "spool.unavailable", "maintain.failed", "schedule.failed"):
            assert daemon.said(event) == []


@pytest.mark.slow
async def test_a_worker_behind_a_pooler_polls_and_logs_it_once(system: System, books: Books, pgbouncer: Path) -> None:
    with pooling(pgbouncer, system.uri) as through:
        smtpd = await system.smtpd(**by_way_of(through))
        worker = await system.worker(books.sink.port, **by_way_of(through))
        [line] = await worker.until_said("wakeup.swallowed")
        assert "wakeup.uri" in line["hint"]
        await delivered(system, books, smtpd)
        await system.until("SELECT count(*) = 0 FROM messages")  # maintenance continues too
        assert len(worker.said("wakeup.swallowed")) == 1
        assert worker.said("wakeup.deaf") == worker.said("wakeup.lost") == []
        untroubled(smtpd, worker)
        await smtpd.stop()
        await worker.stop()


@pytest.mark.slow
async def test_a_worker_with_a_direct_uri_for_listening_is_notified(
    system: System, books: Books, pgbouncer: Path
) -> None:
    with pooling(pgbouncer, system.uri) as through:
        smtpd = await system.smtpd(**by_way_of(through))
        listening = {"uri": system.uri, "probe": "100ms"}
        worker = await system.worker(books.sink.port, claim=SELDOM, wakeup=listening, **by_way_of(through))
        await delivered(system, books, smtpd)
        assert worker.said("wakeup.swallowed") == worker.said("wakeup.deaf") == []
        untroubled(smtpd, worker)
        await smtpd.stop()
        await worker.stop()


async def test_a_polling_worker_does_not_listen(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, wakeup={"mode": "poll"})
    await books.submit(smtpd, numbered(20))
    await books.until_arrived(20)
    assert worker.said("wakeup.listening") == []
    assert await system.value("SELECT count(*) FROM pg_stat_activity WHERE query ~ 'LISTEN'") == 1  # this very question
