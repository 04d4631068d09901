"""test_dropped_final_reply_is_uncertain_and_retried — no reply to the final dot: sent again, and marked as uncertain

Owns: the one duplicate that SMTP cannot avoid, and its record in the history.
See: RFC 1047; RFC 5321 section 4.5.4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.sink.server import Sink
from tests.fixtures.daemons.submit import Books, numbered

if TYPE_CHECKING:
    from scripts.sink.records import Received
    from tests.fixtures.daemons.system import System


class ForgetfulSink(Sink):
    """Accepts every message, and closes the connection instead of replying to the first."""

    def __init__(self) -> None:
        super().__init__(keep_content=True, callback=self.took)
        self.books = Books(self)

    def took(self, record: Received) -> None:
        """The callback runs after the record is written and before the 250."""
        self.books.arrived(record)
        if len(self.received) == 1:
            for session in tuple(self._sessions):
                session.abort()


async def test_the_message_is_sent_again_and_marked_uncertain_in_the_history(system: System) -> None:
    smtpd = await system.smtpd()
    async with ForgetfulSink() as sink:
        await system.worker(sink.port)
        await sink.books.submit(smtpd, numbered(1))
        await sink.books.until_arrived(2)
        await system.until_finished()
    attempts = await system.rows("SELECT retry_count, outcome, uncertain FROM attempts ORDER BY retry_count")
    assert attempts == [(1, "deferred", True), (2, "delivered", False)]
    assert await system.rows("SELECT result, retry_count FROM archive") == [("success", 2)]
    first, second = sink.received
    assert (first.sender, first.recipients, first.sha256) == (second.sender, second.recipients, second.sha256)
    account = sink.books.account()
    assert (account.delivered, account.lost, account.duplicated, account.altered) == (1, 0, 1, 0)


async def test_mail_to_a_peer_that_always_drops_the_reply_expires_with_every_copy_counted(
    system: System, books: Books
) -> None:
    smtpd = await system.smtpd()
    await system.worker(books.sink.port, transport={"retry": {"count": 2}})
    await books.submit(smtpd, numbered(1, box="dropdot"))
    await system.until("SELECT count(*) = 1 FROM archive")
    [(result, tries)] = await system.rows("SELECT result, retry_count FROM archive")
    assert result == "expired"
    assert tries > 1
    assert await system.rows("SELECT outcome, uncertain FROM attempts") == [("deferred", True)] * tries
    assert len(books.sink.received) == tries
