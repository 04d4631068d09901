"""test_partition_without_worker_waits — mail that no worker selects waits unchanged until a worker does

Owns: the proof that a gap in the workers' conditions delays mail and loses none.
See: config/queued.yaml, `workers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.mail.partition import partition_id
from tests.fixtures.daemons.submit import DOMAINS, numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

MESSAGES = 90
SERVED = [domain for domain in DOMAINS if partition_id(domain, 6) in {"1", "2", "3"}]
COUNT = "SELECT count(*) FROM queue WHERE token IS NULL AND retry_count = 0"


async def test_mail_without_a_worker_waits_unchanged_until_one_starts(system: System, books: Books) -> None:
    assert 0 < len(SERVED) < len(DOMAINS)
    smtpd = await system.smtpd()
    served = MESSAGES // len(DOMAINS) * len(SERVED)
    await system.worker(books.sink.port, "queued-123", "metadata->>'_partid' IN ('1', '2', '3')")
    await books.submit(smtpd, numbered(MESSAGES))
    await books.until_arrived(served)
    await system.until("SELECT count(*) = %s FROM archive", served)
    assert await system.value(COUNT) == MESSAGES - served
    assert {to.rpartition("@")[2] for _, to in books.ledger.arrived} == set(SERVED)

    await system.worker(books.sink.port, "queued-456", "metadata->>'_partid' IN ('4', '5', '6')")
    await books.until_arrived(MESSAGES)
    await system.until_finished()
    assert str(books.account()) == f"accepted={MESSAGES} delivered={MESSAGES} lost=0 duplicated=0 altered=0"
