"""test_connection_to_postgresql_fails — a worker's connections are cut or silent: mail is late, never lost

Owns: the proof that a worker survives every network failure between it and a healthy server.
See: tests/fixtures/peers/proxy.py; shared/postgres/wakeup.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.peers.proxy import relaying
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

MESSAGES = 400
CUTS = 5


@pytest.mark.slow
async def test_a_worker_with_repeatedly_cut_connections_delivers_everything(system: System, books: Books) -> None:
    async with relaying(system.uri) as proxy:
        smtpd = await system.smtpd()
        worker = await system.worker(books.sink.port, environment={"database": {"uri": proxy.uri}})
        pid = worker.pid
        proxy.delay = 0.01
        submitting = asyncio.create_task(books.submit(smtpd, numbered(MESSAGES)))
        for cut in range(1, CUTS + 1):
            await books.until_arrived(cut * MESSAGES // (2 * CUTS))
            proxy.cut()
        await submitting
        await books.until_arrived(MESSAGES)
        await system.until_finished()
        account = books.account()
        assert (account.lost, account.altered, worker.pid) == (0, 0, pid)
        expired = await system.value("SELECT count(*) FROM attempts WHERE outcome = 'lease_expired'")
        assert account.duplicated <= expired
        assert worker.said("wakeup.lost")
        await worker.stop()


@pytest.mark.slow
async def test_a_silent_listening_connection_is_replaced_and_missed_mail_delivered(
    system: System, books: Books
) -> None:
    async with relaying(system.uri) as proxy:
        smtpd = await system.smtpd()
        listening = {"uri": proxy.uri, "probe": "200ms"}
        # It polls too rarely to help, and retries nothing: only the wake-up delivers.
        worker = await system.worker(
            books.sink.port, claim={"poll": "30m"}, wakeup=listening, maintenance={"interval": "30m"}
        )
        await books.submit(smtpd, numbered(5))
        await books.until_arrived(5)
        proxy.deaf()
        await books.submit(smtpd, numbered(5, first=5))
        await worker.until_said("wakeup.deaf")
        await books.until_arrived(10)
        await eventually(lambda: proxy.open == 1, "the deaf connection is closed")
        await books.submit(smtpd, numbered(5, first=10))
        await books.until_arrived(15)
        await system.until_finished()
        assert books.account().clean
        await worker.stop()
