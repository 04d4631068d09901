"""test_waiting_mail_expires — senders of suspended mail are notified, and it is bounced at its age; held mail is not

Owns: retry.age and retry.notice for mail that is not tried, through real daemons.
See: queued/outcome/ageing.py; docs/explanation/retries.md, "Mail that waits"
"""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.serving import Dialogue
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.database.notices import fields, parse

if TYPE_CHECKING:
    from email.message import EmailMessage

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

BOUNCES = {"enabled": True, "gather": "0s", "hostname": "mx.test"}
SUSPENDS = {"suspends": [{"match": {"destination": ["ash.example"]}, "reason": "moving until noon"}]}
OLDER = "UPDATE queue SET ts = ts - interval '6 days', next_retry = now() WHERE senderdomain IS NOT NULL"


def notifications(books: Books) -> list[EmailMessage]:
    """The notifications that have arrived."""
    return [parse(each.content or b"") for each in books.sink.received if not each.sender]


async def test_mail_suspended_past_its_age_limit_is_bounced(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, bounces=BOUNCES, pacing=SUSPENDS)
    await books.submit(smtpd, numbered(3, ["ash.example"]))
    await system.until("SELECT count(*) = 3 FROM queue WHERE last_error = 'waiting: suspended: moving until noon'")
    assert await system.value("SELECT count(*) FROM archive") == 0
    await system.rows(OLDER)
    await system.until("SELECT count(*) = 6 FROM archive")  # each, and its notification
    expired = await system.rows("SELECT last_error, retry_count FROM archive WHERE result = 'expired'")
    assert expired == [("delivery time expired: suspended: moving until noon", 1)] * 3
    assert await system.rows("SELECT DISTINCT outcome, scope FROM attempts WHERE remote IS NULL") == [
        ("deferred", "us")
    ]
    assert [line["result"] for line in await worker.until_said("result.failed", 3)] == ["expired"] * 3
    for message in notifications(books):
        assert message["Subject"] == "Undelivered Mail Returned to Sender"
        _, recipient = fields(message)
        assert (recipient["Action"], recipient["Status"]) == ("failed", "4.4.7")
        assert recipient["Diagnostic-Code"] == ("X-Pillarbox; delivery time expired: suspended: moving until noon")
    assert len(notifications(books)) == 3
    assert books.arrivals == 0


@pytest.mark.parametrize("instant", ["result.before_record", "result.after_record"])
async def test_a_worker_killed_while_mail_expires_sends_each_bounce_once(
    system: System, books: Books, instant: str
) -> None:
    smtpd = await system.smtpd()
    await books.submit(smtpd, numbered(3, ["ash.example"]))
    await system.rows(OLDER)
    system.environment = {"PILLARBOX_FAIL": f"{instant}:kill"}
    doomed = await system.worker(books.sink.port, "doomed", claim={"lease": "6s"}, bounces=BOUNCES, pacing=SUSPENDS)
    assert await doomed.ended() == -signal.SIGKILL
    system.environment = {}
    await system.worker(books.sink.port, "heir", bounces=BOUNCES, pacing=SUSPENDS)
    await system.until("SELECT count(*) = 3 FROM archive WHERE result = 'expired'")
    await system.until("SELECT count(*) = 0 FROM notices")
    await system.until_finished()
    assert {message["To"] for message in notifications(books)} == {f"n-00000{n}@origin.example" for n in range(3)}
    assert len(notifications(books)) == 3


async def test_the_sender_of_suspended_mail_gets_one_delay_notice(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await system.worker(books.sink.port, transport={"retry": {"notice": "4h"}}, bounces=BOUNCES, pacing=SUSPENDS)
    await books.submit(smtpd, numbered(1, ["ash.example"]))
    await system.until("SELECT count(*) = 1 FROM queue WHERE last_error = 'waiting: suspended: moving until noon'")
    await system.rows("UPDATE queue SET ts = ts - interval '5 hours', next_retry = now()")
    await system.until("SELECT count(*) = 1 FROM archive")  # the notice itself, delivered
    [message] = notifications(books)
    _, recipient = fields(message)
    assert (recipient["Action"], recipient["Final-Recipient"]) == ("delayed", "rfc822; 000000.r@ash.example")
    assert recipient["Will-Retry-Until"]
    assert recipient["Diagnostic-Code"] == "X-Pillarbox; waiting: suspended: moving until noon"
    # Checked again, it keeps waiting without another notification.
    await system.rows("UPDATE queue SET next_retry = now()")
    await system.until(
        "SELECT count(*) = 1 FROM queue WHERE next_retry > now() AND token IS NULL AND noticed IS NOT NULL"
    )
    assert await system.value("SELECT count(*) FROM attempts WHERE remote IS NULL") == 1
    assert await system.value("SELECT count(*) FROM notices") == 0


async def test_mail_that_reaches_its_age_limit_outside_its_window_expires(system: System, books: Books) -> None:
    now = datetime.now(UTC)
    closed = {"from": f"{now + timedelta(hours=2):%H:%M}", "to": f"{now + timedelta(hours=3):%H:%M}"}
    smtpd = await system.smtpd()
    await system.worker(books.sink.port, transport={"windows": [closed], "retry": {"age": "2s"}})
    await books.submit(smtpd, numbered(3))
    await system.until("SELECT count(*) = 3 FROM archive WHERE result = 'expired'")
    assert await system.value("SELECT bool_and(finished - ts >= interval '2 s') FROM archive")
    assert await system.value(
        "SELECT bool_and(last_error LIKE 'delivery time expired: transport default %%') FROM archive"
    )
    assert books.sink.received == []


async def test_held_mail_does_not_age_and_has_its_try_when_it_is_released(system: System, books: Books) -> None:
    rule = {"id": "suspects", "if": {"recipientdomain": ["held.example"]}, "then": {"hold": "review"}}
    smtpd = await system.smtpd(policy={"rules": [rule]})
    policy = {"policies": [{"id": "slowly", "fields": [], "rate": "1/hour"}]}
    await system.worker(books.sink.port, bounces=BOUNCES, pacing=policy, transport={"retry": {"notice": "4h"}})
    await books.submit(smtpd, numbered(2, ["held.example"]), sessions=1)
    await system.until("SELECT count(*) = 2 FROM queue WHERE status = 'HOLD'")
    await system.rows(OLDER)
    # A round of the worker skips it: later mail is delivered and uses the policy's limit.
    await books.submit(smtpd, numbered(1, ["free.example"], first=2))
    await books.until_arrived(1)
    assert (
        await system.rows("SELECT retry_count, noticed, last_error FROM queue WHERE status = 'HOLD'")
        == [(0, None, None)] * 2
    )
    # Released, it waits for its turn and is not bounced, although its age has passed.
    await system.rows("UPDATE queue SET status = 'DELIVER' WHERE status = 'HOLD'")
    await system.until("SELECT count(*) = 2 FROM queue WHERE last_error = 'waiting: policy slowly: 1/hour'")
    assert await system.value("SELECT count(*) FROM archive WHERE result <> 'success'") == 0
    assert notifications(books) == []


async def test_the_age_of_delayed_mail_begins_at_its_release_time(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await system.worker(books.sink.port, pacing=SUSPENDS, transport={"retry": {"age": "2s"}})
    async with Dialogue(smtpd.address[1], ehlo=b"EHLO submitter.example") as client:
        assert (await client.ask(b"MAIL FROM:<later@origin.example> HOLDFOR=6")).startswith("250")
        assert (await client.ask(b"RCPT TO:<later@ash.example>")).startswith("250")
        assert (await client.data(b"Subject: later\r\n\r\nx\r\n")).startswith("250")
    [(due,)] = await system.rows("SELECT next_retry FROM queue")
    await system.until("SELECT count(*) = 1 FROM archive WHERE result = 'expired'")
    assert await system.value("SELECT finished - %s >= interval '2 s' FROM archive", due)
