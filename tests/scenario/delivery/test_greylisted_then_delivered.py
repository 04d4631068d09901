"""test_greylisted_then_delivered — a temporarily refused recipient is retried and delivered once

Owns: the normal retry: 451 first, 250 later, one delivery.
See: RFC 5321 section 4.5.4.1; RFC 6647 (greylisting).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.daemons.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

MESSAGES = 20


async def test_the_second_try_delivers(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, transport={"retry": {"intervals": ["1s"]}})
    await books.submit(smtpd, numbered(MESSAGES, box="greylist"))
    await books.until_arrived(MESSAGES)
    await system.until_finished()
    assert books.account().clean
    attempts = await system.rows(
        "SELECT retry_count, outcome, scope, reply_code, count(*) FROM attempts GROUP BY 1, 2, 3, 4 ORDER BY 1"
    )
    assert attempts == [(1, "deferred", "recipient", 451, MESSAGES), (2, "delivered", "recipient", 250, MESSAGES)]
    # The schedule's wait was between the two tries; the time of recording is a little later than a try.
    waits = """
        SELECT count(*) FROM attempts a JOIN attempts b ON b.queue__id = a.queue__id AND b.retry_count = 2
         WHERE a.retry_count = 1 AND b.ts - a.ts < interval '500 ms'
    """
    assert await system.value(waits) == 0
    assert len(worker.said("result.deferred")) == MESSAGES
    assert await system.value("SELECT count(*) FROM archive WHERE result = 'success' AND last_error LIKE '451 4.1.1%%'")
