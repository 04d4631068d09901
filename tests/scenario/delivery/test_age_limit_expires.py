"""test_age_limit_expires — mail that is too old, or was tried too often, is bounced and archived as expired

Owns: both ends of the retry schedule.
See: Postfix maximal_queue_lifetime; queued/outcome/retry.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.daemons.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System


async def test_mail_past_its_age_limit_expires(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, transport={"retry": {"age": "1s"}})
    await books.submit(smtpd, numbered(3, box="temperror"))
    await system.until("SELECT count(*) = 3 FROM archive")
    rows = await system.rows("SELECT result, finished - ts >= interval '1 s', retry_count > 0, last_error FROM archive")
    assert rows == [("expired", True, True, "451 4.1.1 scripted in the recipient")] * 3
    assert await system.rows("SELECT DISTINCT outcome FROM attempts") == [("deferred",)]
    assert books.sink.received == []
    assert [line["result"] for line in await worker.until_said("result.failed", 3)] == ["expired"] * 3


async def test_mail_expires_after_its_last_try(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    # The first try and two further ones.
    await system.worker(books.sink.port, transport={"retry": {"count": 2}})
    await books.submit(smtpd, numbered(3, box="temperror"))
    await system.until("SELECT count(*) = 3 FROM archive")
    assert await system.rows("SELECT result, retry_count FROM archive") == [("expired", 3)] * 3
    assert await system.value("SELECT count(*) FROM attempts") == 9
