"""test_notice_roles — the granted rights suffice to notify senders, to learn from reports, and to read suppressions

Owns: proofs about the rights on notices in sql/schema/25_right.sql.
See: docs/how-to/rights/grant-roles.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from queued.reports.suppression_screen import Screen, Screening
from shared.config.suppression import Suppression
from shared.postgres import database as db
from tests.fixtures.daemons.serving import Dialogue, serving
from tests.fixtures.database.notices import noted, notifier, sent
from tests.fixtures.database.results import FAILED, claim, finished, running_recorder

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

SUPPRESSED = "INSERT INTO pillarbox.suppressions (target, reason, source) VALUES ('gone.example', 'x', 'operator')"
REPORT = """Content-Type: multipart/report; boundary="x"\r
\r
--x\r
Content-Type: message/delivery-status\r
\r
Final-Recipient: rfc822; r1@example.com\r
Action: failed\r
Status: 5.1.1\r
--x\r
Content-Type: text/rfc822-headers\r
\r
Received: by mx.test\r
\tid {message}; Sat, 21 Nov 2026 10:00:00 +0000\r
--x--\r
"""


async def test_a_worker_records_sends_and_learns_with_granted_rights(factory: Factory, logins: Logins) -> None:
    worker = logins.uri("queued")
    message = factory.message()
    factory.row(message=message)
    [c] = await claim(worker)
    async with running_recorder(worker) as recorder:
        recorder.add([finished(c, FAILED, "failed")])
        await recorder.drained()
    noted(factory, sender="bad@bad..domain")
    connection = await db.connect(worker, "notifier")
    async with connection:
        assert await notifier(rate={"persender": 1}, postmaster="pm@ours.example").send_due(connection) == 1
        noted(factory, sender="sender@sender.example")
        assert await notifier(rate={"persender": 1}).send_due(connection) == 0
    assert [whom for whom, _ in sent(factory)] == ["sender@sender.example", "pm@ours.example"]
    assert factory.one("SELECT count(*) FROM pillarbox.notices WHERE due > now()") == 2
    factory.sql("DELETE FROM pillarbox.queue")
    factory.row(domain="bounces.example")
    [report] = await claim(worker)
    pool = await db.open_pool(worker, "screen", 1)
    screen = Screen(pool, Screening(Suppression.model_validate({"addresses": ["bounces.example"]})))
    [result], _ = await screen.look([report], REPORT.format(message=message).encode())
    await pool.close()
    assert result.outcome.text == "a report on 1"
    assert factory.one("SELECT target FROM pillarbox.suppressions") == "r1@example.com"


async def test_smtpd_reads_suppressions_and_cannot_change_them(factory: Factory, logins: Logins) -> None:
    factory.sql(SUPPRESSED)
    smtpd = logins.uri("smtpd")
    async with serving(smtpd, suppression={"action": "reject"}) as port, Dialogue(port) as client:
        await client.say(b"MAIL FROM:<a@sender.example>")
        assert (await client.say(b"RCPT TO:<ann@gone.example>"))[-1].startswith("550 5.7.1")
        assert (await client.say(b"RCPT TO:<ann@here.example>"))[-1].startswith("250")
    with logins.session("smtpd") as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute("DELETE FROM suppressions")
    with logins.session("application") as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute("SELECT notice_copy('a@b.example', 'x', 'default', false)")
