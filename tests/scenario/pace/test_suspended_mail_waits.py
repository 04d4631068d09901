"""test_suspended_mail_waits — a suspended destination gets no mail while others do, and all of it after the release

Owns: the proof that `pillarbox suspend` and its release affect a real worker at once.
See: tests/integration/pacing/test_suspends.py for each check of a worker.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.daemons.system import ROOT

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

SUSPENDED, FREE = 12, 30


async def suspend(system: System, *arguments: str) -> Any:
    """Run `pillarbox suspend` as an operator would."""
    command = [sys.executable, "-m", "scripts.cli", "suspend", *arguments, "--json", "--config", str(system.folder)]
    running = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    out, _ = await running.communicate()
    assert running.returncode == 0
    return json.loads(out)


async def test_suspended_mail_waits_and_leaves_at_once_when_the_suspend_is_removed(
    system: System, books: Books
) -> None:
    smtpd = await system.smtpd()
    # It does not poll in time, so it learns of changes only by notification.
    worker = await system.worker(books.sink.port, claim={"poll": "60s"})
    row = await suspend(system, "add", "--destination", "ash.example", "--reason", "they asked")
    await books.submit(smtpd, numbered(SUSPENDED, ["ash.example"]))
    await books.submit(smtpd, numbered(FREE, ["elm.example", "oak.example"], first=SUSPENDED))
    await books.until_arrived(FREE)
    await system.until(
        "SELECT count(*) = %s FROM queue WHERE last_error = 'waiting: suspended: they asked' AND token IS NULL"
        " AND next_retry > now() + interval '5 minutes' AND retry_count = 0",
        SUSPENDED,
    )
    assert books.arrivals == FREE
    assert not await system.value("SELECT count(*) FROM attempts WHERE recipientdomain = 'ash.example'")

    await suspend(system, "remove", str(row["id"]))
    await books.until_arrived(FREE + SUSPENDED)
    await system.until_finished()
    assert await system.value("SELECT max(retry_count) FROM attempts") == 1
    assert not worker.said("suspend.failed")


async def test_a_starting_worker_reads_suspends_before_it_sends(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await suspend(system, "add", "--tenant", "nobody", "--reason", "of no concern")
    await suspend(system, "add", "--destination", ".example", "--reason", "they asked", "--for", "1h")
    await books.submit(smtpd, numbered(SUSPENDED, ["ash.example"]))
    await system.worker(books.sink.port)
    await system.until("SELECT count(*) = %s FROM queue WHERE last_error = 'waiting: suspended: they asked'", SUSPENDED)
    assert books.arrivals == 0
