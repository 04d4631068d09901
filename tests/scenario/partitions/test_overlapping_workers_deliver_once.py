"""test_overlapping_workers_deliver_once — workers with overlapping conditions deliver every message once

Owns: the proof that a claim excludes every other worker, with any conditions.
See: sql/queries/delivery/claim.sql (SKIP LOCKED).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

MESSAGES = 1500
WORKERS = {
    "low": "metadata->>'_partid' IN ('1', '2', '3', '4')",
    "high": "metadata->>'_partid' IN ('3', '4', '5', '6')",
    "all": "true",
}


@pytest.mark.slow
async def test_every_message_is_delivered_exactly_once(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    for name, where in WORKERS.items():
        await system.worker(books.sink.port, name, where, claim={"batch": 20, "inflight": 60})
    await books.submit(smtpd, numbered(MESSAGES), sessions=20)
    await books.until_arrived(MESSAGES)
    await system.until_finished()
    assert str(books.account()) == f"accepted={MESSAGES} delivered={MESSAGES} lost=0 duplicated=0 altered=0"
    assert await system.value("SELECT count(*) FROM attempts") == MESSAGES
    shares = dict(await system.rows("SELECT split_part(worker, '@', 1), count(*) FROM archive GROUP BY 1"))
    assert shares.keys() == WORKERS.keys(), "a worker had no mail, so this test proves little"
    assert sum(shares.values()) == MESSAGES
