"""test_smtpd_killed_mid_run — kill -9 of smtpd loses nothing that was answered 250

Owns: the row "smtpd, anywhere" of the crash table. A message without a reply may or may not have been committed.
See: RFC 5321 section 6.1 (responsibility begins with the 250); sql/README.md, "Crash table".
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

MESSAGES = 2500
SESSIONS = 20


def enough(books: Books, wanted: int) -> bool:
    return books.accepted >= wanted


@pytest.mark.slow
async def test_everything_answered_250_arrives(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await system.worker(books.sink.port)
    submitting = asyncio.create_task(books.submit(smtpd, numbered(MESSAGES), SESSIONS))
    for third in (MESSAGES // 3, 2 * MESSAGES // 3):
        await eventually(partial(enough, books, third), f"{third} messages are accepted")
        await smtpd.kill()
        await smtpd.start()
    await submitting
    await books.until_arrived(books.accepted)
    await system.until_finished()

    account = books.account()
    assert (account.lost, account.duplicated, account.altered) == (0, 0, 0)
    assert books.refusals() == set()
    assert 0 < books.unanswered <= 2 * SESSIONS, "no session was lost, so this test proves nothing"
    assert account.accepted + books.unanswered == MESSAGES
    # Mail that arrived without a 250 was committed before the kill, and arrived once.
    assert all(len(arrivals) == 1 for arrivals in books.ledger.early.values())
    assert len(books.ledger.early) <= books.unanswered
    archived = await system.value("SELECT count(*) FROM archive WHERE result = 'success'")
    assert archived == account.accepted + len(books.ledger.early)
