"""test_sender_gets_one_delay_notice — one delay notice is sent, and the mail keeps its retries

Owns: retry.notice from the attempt that is late to the sender's mailbox.
See: docs/explanation/retries.md; RFC 3464 section 2.3.3 (Action: delayed)
"""

from __future__ import annotations

from email import message_from_bytes
from email.policy import default
from typing import TYPE_CHECKING

from tests.fixtures.daemons.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System


async def test_many_tries_cause_one_delay_notice(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await system.worker(
        books.sink.port,
        transport={"retry": {"intervals": ["100ms"], "notice": "1ms", "count": 100}},
        bounces={"enabled": True, "gather": "0s"},
    )
    await books.submit(smtpd, numbered(1, box="temperror"))
    await system.until("SELECT count(*) = 1 FROM archive")  # the notice itself, delivered
    await system.until("SELECT count(*) >= 4 FROM attempts WHERE outcome = 'deferred'")
    assert await system.value("SELECT count(*) FROM notices") == 0
    [notice] = [record for record in books.sink.received if not record.sender]
    assert notice.recipients == ("n-000000@origin.example",)
    message = message_from_bytes(notice.content or b"", policy=default)
    _, recipient = next(
        part for part in message.walk() if part.get_content_type() == "message/delivery-status"
    ).iter_parts()
    assert (recipient["Action"], recipient["Final-Recipient"]) == ("delayed", "rfc822; 000000.temperror@ash.example")
    assert recipient["Will-Retry-Until"]
    [waiting] = await system.rows("SELECT noticed IS NOT NULL, status FROM queue WHERE senderdomain IS NOT NULL")
    assert waiting == (True, "DELIVER")
