"""test_held_mail_waits — held mail is not delivered until an operator releases or deletes it

Owns: quarantined mail: held by a policy rule, released by an UPDATE, or deleted by the retention statement.
See: Halon's queue manual, "Quarantine"; its retention query, with ->> instead of the manual's ->.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import Daemon, System


async def hold_five(system: System, books: Books, quarantine: str = "review") -> Daemon:
    """Five held messages, and one behind them that shows that the worker has passed them."""
    rule = {"id": "suspects", "if": {"recipientdomain": ["held.example"]}, "then": {"hold": quarantine}}
    smtpd = await system.smtpd(policy={"rules": [rule]})
    worker = await system.worker(books.sink.port)
    await books.submit(smtpd, numbered(5, ["held.example"]), sessions=1)
    await books.submit(smtpd, numbered(1, first=5))
    await books.until_arrived(1)
    held = await system.rows(
        "SELECT tableoid::regclass::text, metadata->>'_quarantineid', retry_count, count(*)"
        " FROM queue WHERE status = 'HOLD' GROUP BY 1, 2, 3"
    )
    assert held == [("queue_hold", quarantine, 0, 5)]
    committed = await smtpd.until_said("spool.committed", 6)
    assert [line.get("held") for line in committed] == ["True"] * 5 + [None]
    return worker


async def test_released_mail_is_delivered_intact(system: System, books: Books) -> None:
    await hold_five(system, books)
    await system.rows("UPDATE queue SET status = 'DELIVER' WHERE status = 'HOLD'")
    await books.until_arrived(6)
    await system.until_finished()
    assert str(books.account()) == "accepted=6 delivered=6 lost=0 duplicated=0 altered=0"
    assert await system.value("SELECT count(*) FROM archive WHERE result = 'success'") == 6


async def test_retention_deletes_held_mail_and_its_bodies(system: System, books: Books) -> None:
    worker = await hold_five(system, books)
    await system.rows(
        "UPDATE queue SET status = 'DELETE' WHERE status = 'HOLD'"
        " AND metadata->>'_quarantineid' = 'review' AND ts < now() - interval '0 seconds'"
    )
    await system.until("SELECT count(*) = 5 FROM archive WHERE result = 'deleted'")
    await system.until("SELECT count(*) = 0 FROM messages")
    await system.until_finished()
    assert await system.value("SELECT count(*) FROM archive") == 6

    def deleted() -> int:
        return sum(int(line["deleted"]) for line in worker.said("maintain.finished"))

    await eventually(lambda: deleted() >= 5, "it says how many were deleted")
    assert deleted() == 5
    assert books.arrivals == 1


async def test_retention_keeps_mail_younger_than_its_limit(system: System, books: Books) -> None:
    await hold_five(system, books)
    await system.rows(
        "UPDATE queue SET status = 'DELETE' WHERE status = 'HOLD'"
        " AND metadata->>'_quarantineid' = 'review' AND ts < now() - interval '1 day'"
    )
    # The body of the delivered message is swept by a later round, which would have finished a deletion first.
    await system.until("SELECT count(*) = 5 FROM messages")
    assert await system.value("SELECT count(*) FROM queue WHERE status = 'HOLD'") == 5


async def test_quarantine_ids_of_the_manual_are_accepted(system: System, books: Books) -> None:
    await hold_five(system, books, "mailquarantine:release1")
