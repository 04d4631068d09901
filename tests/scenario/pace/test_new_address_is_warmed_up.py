"""test_new_address_is_warmed_up — a worker sends the day's allowance; the rest waits without counting a try

See: tests/integration/pacing/test_warmup.py for several workers; docs/how-to/deliver/several-source-addresses.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from scripts.demo.sample_mail import Sample
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System


async def test_mail_beyond_the_allowance_waits_for_tomorrow(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    today = datetime.now(UTC).date().isoformat()
    source = {"address": "127.0.0.11", "warmup": {"from": today, "days": [3, 1000]}}
    worker = await system.worker(books.sink.port, transport={"sources": [source]})
    mail = [
        Sample(f"n-{n:06}@origin.example", (f"bob{n}@one.test",), b"Subject: new\r\n\r\nHello.\r\n") for n in range(5)
    ]
    await books.submit(smtpd, mail)
    await eventually(lambda: len(books.sink.received) == 3, "as many leave as the day allows")
    await worker.until_said("warmup.used_up")
    await system.until(
        """SELECT count(*) = 2 FROM queue WHERE token IS NULL AND retry_count = 0
             AND (next_retry > now() + interval '1 minute' OR now()::time > '23:58')"""
    )
    await system.until("SELECT count(*) = 3 FROM archive")
    assert await system.rows("SELECT source, count(*) FROM attempts GROUP BY 1") == [("127.0.0.11", 3)]
    assert await system.value("SELECT used FROM warmups") == 3
