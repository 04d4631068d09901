"""test_recurring_mail_is_delivered — a schedule that is due reaches its recipients once, whichever worker sends it

Owns: recurring mail from the table of schedules to the peer.
See: docs/how-to/send/schedule-mail.md; queued/schedule.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

CONTENT = b"Subject: report\r\n\r\nAs every morning.\r\n"


async def test_recurring_mail_arrives_once_with_a_date_of_its_own(system: System, books: Books) -> None:
    workers = [await system.worker(books.sink.port, name) for name in ("one", "two", "three")]
    await system.rows(
        """INSERT INTO schedules (id, cron, sender, recipients, content, next_at)
           VALUES ('report', '0 0 1 1 *', 'robot@origin.example', '{a@ash.example,b@birch.example}', %s,
                   now() + interval '1 second'),
                  ('broken', 'never', '', '{c@ash.example}', %s, now() - interval '1 year')""",
        CONTENT,
        CONTENT,
    )
    await eventually(lambda: sum(len(r.recipients) for r in books.sink.received) == 2, "both recipients have it")
    await system.until_finished()
    for record in books.sink.received:
        assert record.sender == "robot@origin.example"
        assert record.content is not None
        date, message_id, rest = record.content.split(b"\r\n", 2)
        assert date.startswith(b"Date: ")
        assert message_id.startswith(b"Message-ID: <report.")
        assert rest == CONTENT

    def said(event: str) -> list[dict[str, str]]:
        return [fields for worker in workers for fields in worker.said(event)]

    await eventually(lambda: said("schedule.sent") and said("schedule.disabled"), "a worker tells of both schedules")
    [sent] = said("schedule.sent")
    assert sent["schedule"] == "report"
    assert float(sent["seconds"]) < 60
    assert await system.rows("SELECT id, enabled FROM schedules ORDER BY id") == [("broken", False), ("report", True)]
    assert [fields["schedule"] for fields in said("schedule.disabled")] == ["broken"]
    assert await system.rows("SELECT DISTINCT jobid, result FROM archive") == [("report", "success")]
