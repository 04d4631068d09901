"""test_postgres_killed_under_load — kill -9 of the postmaster: clients get 451, no mail is lost, no daemon restarts

Owns: the row "PostgreSQL, anywhere" of the crash table, on the test's own server.
See: shared/postgres/embedded/embedded.py; sql/README.md, "Crash table".
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from shared.postgres import migrate
from shared.postgres.embedded import embedded
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.daemons.system import System
from tests.fixtures.servers.postgres import LEAVES, temporary_var
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripts.demo.sample_mail import Sample
    from tests.fixtures.daemons.submit import Books

SESSIONS = 10
ENOUGH = 400  # messages before the kill, and again after it
REFUSED = 20  # clients that must have received 451 meanwhile


# Lines for an operator while PostgreSQL is away: one for the outage, and possibly some for single messages.
EXPECTED = ("database.lost", "claim.ended", "claim.expired", "claim.lost", "daemon.privileged", "spool.reply_lost")


class Tap:
    """Numbered mail until it is turned off."""

    def __init__(self) -> None:
        self.open = True

    def __iter__(self) -> Iterator[Sample]:
        for sample in numbered(1_000_000):
            if not self.open:
                return
            yield sample


@pytest.mark.slow
async def test_accepted_mail_is_not_lost_and_the_daemons_recover(books: Books, tmp_path: Path) -> None:
    with temporary_var() as var:
        uri = embedded.ensure_running(var)
        migrate.migrate(uri, LEAVES)
        system = System(uri, tmp_path)
        try:
            await kill_and_recover(system, books, var)
        finally:
            await system.close()
        assert system.faults() == []


async def kill_and_recover(system: System, books: Books, var: Path) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, claim={"inflight": 200})
    tap = Tap()
    submitting = asyncio.create_task(books.submit(smtpd, tap, SESSIONS))
    pids = (smtpd.pid, worker.pid)
    await books.until_arrived(ENOUGH)

    running = embedded.status(var)
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    await eventually(lambda: sum(r.startswith("451") for r in books.replies.values()) >= REFUSED, "clients get 451")
    before = books.accepted
    await asyncio.to_thread(embedded.ensure_running, var)
    await eventually(lambda: books.accepted >= before + ENOUGH, "mail is accepted again")
    tap.open = False
    await submitting
    await books.until_arrived(books.accepted)
    await system.until_finished()

    assert (smtpd.pid, worker.pid) == pids
    assert books.refusals() == {"451"}
    assert books.unanswered == 0
    account = books.account()
    assert (account.lost, account.altered) == (0, 0)
    # Delivered, but the result was lost with the server: such mail is sent again when its lease expires.
    expired = await system.value("SELECT count(*) FROM attempts WHERE outcome = 'lease_expired'")
    assert account.duplicated <= expired
    assert worker.said("wakeup.lost")
    assert smtpd.said("spool.unavailable")
    for daemon in (smtpd, worker):
        # One outage; a busy server that is back may not answer in time once more, and a connection that was idle may
        # find out later that it ended. Each is over by the next answer.
        lost = daemon.said("database.lost")
        back = await daemon.until_said("database.back", len(lost))
        assert 1 <= len(lost) == len(back) <= 3
        assert int(back[0]["failures"]) >= 1
        assert lost[0]["error"]
        loud = [line for line in daemon.log.splitlines() if line.split(" ")[1] in {"warning", "error"}]
        assert [line for line in loud if not line.split(" ")[2].startswith(EXPECTED)] == []
