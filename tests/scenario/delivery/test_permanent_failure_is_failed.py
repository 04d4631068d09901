"""test_permanent_failure_is_failed — a 5yz fails a recipient at once, and the reply is kept

Owns: the proof that a refusal is final: one try, no retry, archived as failed.
See: RFC 5321 section 4.2.1 (5yz); queued/outcome/classify.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System


@pytest.mark.parametrize(
    ("box", "code", "reply"),
    [
        ("permerror", 550, "550 5.1.1 scripted"),
        ("550dot", 550, "550 5.6.0 scripted"),
        ("554dot", 554, "554 5.6.0 scripted"),
    ],
)
async def test_one_5yz_reply_fails_the_recipient(system: System, books: Books, box: str, code: int, reply: str) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port)
    await books.submit(smtpd, numbered(5, box=box))
    await system.until("SELECT count(*) = 5 FROM archive")
    finished = await system.rows("SELECT result, retry_count, left(last_error, %s) FROM archive", len(reply))
    assert finished == [("failed", 1, reply)] * 5
    attempts = await system.rows("SELECT outcome, reply_code, uncertain, count(*) FROM attempts GROUP BY 1, 2, 3")
    assert attempts == [("failed", code, False, 5)]
    assert await system.value("SELECT count(*) FROM queue") == 0
    assert books.sink.received == []
    assert [line["result"] for line in await worker.until_said("result.failed", 5)] == ["failed"] * 5
    await system.until("SELECT count(*) = 0 FROM messages")
