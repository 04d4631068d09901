"""test_senders_are_notified — the sender of refused mail gets one notification, even if a worker is killed

Owns: the proofs, with real daemons and a sink, that notifications are made, delivered and readable by others, and that
    we learn from notifications about an address.
See: RFC 3461; RFC 3464; queued/dsn/send.py; queued/reports/learn.py; docs/how-to/deliver/bounces.md.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from scripts.demo.sample_mail import Sample
from tests.fixtures.daemons.submit import Client, numbered
from tests.fixtures.database.notices import fields, parse
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from email.message import EmailMessage

    from scripts.sink.records import Received
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

BOUNCES = {"enabled": True, "gather": "0s", "hostname": "mx.test", "rate": {"persender": 1000}}


def notifications(books: Books) -> list[Received]:
    return [each for each in books.sink.received if each.sender == ""]


def parsed(received: Received) -> EmailMessage:
    assert received.content is not None
    return parse(received.content)


async def test_the_sender_of_a_refused_recipient_gets_a_bounce(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await system.worker(books.sink.port, bounces=BOUNCES)
    client = await Client.open(smtpd.address)
    await client.command("MAIL FROM:<app@origin.example> RET=HDRS ENVID=order+2B7")
    for to, asked in (
        ("a.permerror@ash.example", " ORCPT=rfc822;old@ash.example"),
        ("b.permerror@ash.example", " NOTIFY=NEVER"),
        ("c@ash.example", ""),
        ("d@ash.example", " NOTIFY=SUCCESS"),
    ):
        assert (await client.command(f"RCPT TO:<{to}>{asked}")).startswith("250")
    await client.command("DATA")
    assert (await client.command("Subject: an order\r\n\r\nof goods\r\n.")).startswith("250")
    await client.close()

    await eventually(lambda: len(notifications(books)) == 2, "two notifications arrive")
    await system.until_finished()
    arrived = {parsed(each)["Subject"]: each for each in notifications(books)}
    failed, relayed = (
        arrived["Undelivered Mail Returned to Sender"],
        arrived["Successful Mail Relay Report"],
    )
    assert (failed.recipients, relayed.recipients) == (("app@origin.example",), ("app@origin.example",))
    message = parsed(failed)
    assert message.defects == []
    assert (message["To"], message["Auto-Submitted"]) == ("app@origin.example", "auto-replied")
    assert message["From"].endswith("<MAILER-DAEMON@mx.test>")
    of_message, recipient = fields(message)
    assert (of_message["Original-Envelope-Id"], of_message["Reporting-MTA"]) == ("order+7", "dns; mx.test")
    assert parsedate_to_datetime(of_message["Arrival-Date"])
    assert recipient["Original-Recipient"] == "rfc822; old@ash.example"
    assert recipient["Final-Recipient"] == "rfc822; a.permerror@ash.example"
    assert (recipient["Action"], recipient["Status"]) == ("failed", "5.1.1")
    assert recipient["Diagnostic-Code"].startswith("smtp; 550 5.1.1 scripted")
    assert [part.get_content_type() for part in message.iter_parts()][-1] == "text/rfc822-headers"
    assert "Subject: an order" in message.as_string()
    assert "of goods" not in message.as_string()
    assert [group["Action"] for group in fields(parsed(relayed))[1:]] == ["relayed"]
    assert await system.value("SELECT count(*) FROM notices") == 0


async def test_a_killed_worker_sends_each_notification_once(system: System, books: Books) -> None:
    count = 120
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, bounces=BOUNCES, claim={"lease": "1s", "batch": 20})
    await books.submit(smtpd, numbered(count, box="permerror"))
    for made in (10, 40, 80):
        await system.until(
            "SELECT (SELECT count(*) FROM queue WHERE serverid = 'bounce') +"
            " (SELECT count(*) FROM archive WHERE serverid = 'bounce') >= %s",
            made,
        )
        await worker.kill()
        await worker.start()
    await system.until("SELECT count(*) = %s FROM archive WHERE serverid = 'bounce'", count)
    await system.until_finished()
    missing = await system.rows(
        "SELECT recipientlocalpart, count(*) FROM archive WHERE serverid = 'bounce' GROUP BY 1 HAVING count(*) <> 1"
    )
    assert missing == []
    assert await system.value("SELECT count(*) FROM notices") == 0
    assert len({each.recipients for each in notifications(books)}) == count


async def test_a_bounce_to_our_return_path_suppresses_the_address(system: System, books: Books) -> None:
    """Our own bounces come back to us: the sender is an address for reports, as with a signed return path."""
    smtpd = await system.smtpd(suppression={"accept": ["bounces.example"], "action": "off"})
    worker = await system.worker(books.sink.port, bounces=BOUNCES, suppression={"addresses": ["bounces.example"]})
    content = b"Subject: x\r\n\r\nx\r\n"
    await books.submit(smtpd, [Sample("list@bounces.example", ("joe.permerror@ash.example",), content)])
    await system.until("SELECT count(*) = 1 FROM suppressions WHERE target = 'joe.permerror@ash.example' AND active")
    [read] = await worker.until_said("suppression.read")
    assert read["said"] == "a report on 1"
    assert books.sink.received == []
    await books.submit(smtpd, [Sample("app@origin.example", ("joe.permerror@ash.example",), content)])
    await system.until("SELECT count(*) = 1 FROM archive WHERE result = 'rejected'")
    await eventually(lambda: len(notifications(books)) == 1, "the sender is notified")
    assert fields(parsed(notifications(books)[0]))[1]["Status"] == "5.7.1"
