"""test_many_recipients_share_a_transaction — one message to fifty is sent once; each recipient has its own outcome

Owns: grouping by message, and the independence of recipients.
See: RFC 5321 section 3.3; Postfix default_destination_recipient_limit, which is 50.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.demo.sample_mail import Sample
from tests.fixtures.daemons.submit import DOMAINS

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

CONTENT = b"Subject: to many\r\n\r\nHello.\r\n"


async def test_fifty_recipients_are_one_transaction(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await system.worker(books.sink.port)
    recipients = tuple(f"r{number}@{DOMAINS[number % len(DOMAINS)]}" for number in range(50))
    await books.submit(smtpd, [Sample("n-000000@origin.example", recipients, CONTENT)])
    await books.until_arrived(50)
    await system.until_finished()
    assert books.account().clean
    [record] = books.sink.received
    assert set(record.recipients) == set(recipients)
    assert books.sink.commands["MAIL"] == books.sink.commands["DATA"] == 1
    assert await system.rows(
        "SELECT count(*), count(DISTINCT messages__id), count(DISTINCT actionid) FROM archive"
    ) == [(50, 1, 50)]


async def test_the_recipient_limit_of_the_transport_splits_a_transaction(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await system.worker(books.sink.port, transport={"recipients": 20})
    recipients = tuple(f"r{number}@oak.example" for number in range(50))
    await books.submit(smtpd, [Sample("n-000000@origin.example", recipients, CONTENT)])
    await books.until_arrived(50)
    await system.until_finished()
    assert books.account().clean
    assert sorted(len(record.recipients) for record in books.sink.received) == [10, 20, 20]


async def test_each_recipient_has_its_own_outcome(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await system.worker(books.sink.port, transport={"retry": {"count": 3}})
    good = tuple(f"good{number}@oak.example" for number in range(10))
    scripted = ("a.permerror@oak.example", "b.greylist@oak.example", "c.temperror@oak.example")
    await books.submit(smtpd, [Sample("n-000000@origin.example", (*scripted, *good), CONTENT)])
    await system.until_finished()
    outcomes = await system.rows("SELECT recipientlocalpart, result, least(retry_count, 3) FROM archive ORDER BY 1")
    assert outcomes == [
        ("a.permerror", "failed", 1),
        ("b.greylist", "success", 2),
        ("c.temperror", "expired", 3),
        *((to.partition("@")[0], "success", 1) for to in good),
    ]
    first, second = books.sink.received
    assert set(first.recipients) == set(good)
    assert second.recipients == ("b.greylist@oak.example",)
    account = books.account()
    assert (account.delivered, account.duplicated, account.altered) == (11, 0, 0)
    # The body stays until the last of them is finished, and no longer.
    await system.until("SELECT count(*) = 0 FROM messages")
