"""test-reports — reports that come in, and suppressed addresses, become events

Owns: proofs about milestone_reported, and about the kinds bounced, complained and suppressed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from queued.reports.suppression_screen import Screen, Screening
from queued.values import Result
from shared.config.suppression import Suppression
from shared.mail.outcome import Outcome
from shared.postgres import database as db
from tests.fixtures.database.results import DELIVERED, claim, finished, running_recorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.peers.web.hooks import Hooks
    from tests.fixtures.queue.hooked import Hook

    type Make = Callable[[], Awaitable[Hooks]]

BOUNCE = (
    "Content-Type: multipart/report; boundary=x\r\n\r\n--x\r\nContent-Type: message/delivery-status\r\n\r\n"
    "Reporting-MTA: dns; peer.example\r\n\r\nFinal-Recipient: rfc822; r1@example.com\r\nAction: failed\r\n"
    "Status: 5.1.1\r\nDiagnostic-Code: smtp; 550 5.1.1 no such user\r\n\r\n--x\r\n"
    "Content-Type: text/rfc822-headers\r\n\r\nReceived: from app by mx.test with ESMTP\r\n"
    "\tid {message}; Sat, 21 Nov 2026 10:00:00 +0000\r\n--x--\r\n"
)
FEEDBACK = (
    "Content-Type: multipart/report; report-type=feedback-report; boundary=x\r\n\r\n--x\r\n"
    "Content-Type: message/feedback-report\r\n\r\nFeedback-Type: abuse\r\nVersion: 1\r\n"
    "Original-Rcpt-To: <r1@example.com>\r\n\r\n--x\r\n"
    "Content-Type: text/rfc822-headers\r\n\r\nReceived: from app by mx.test with ESMTP\r\n"
    "\tid {message}; Sat, 21 Nov 2026 10:00:00 +0000\r\n--x--\r\n"
)


@pytest.fixture
async def screen(database: str) -> AsyncIterator[Screen]:
    pool = await db.open_pool(database, "screen", 2)
    settings = Suppression.model_validate({"addresses": ["bounces.example"]})
    yield Screen(pool, Screening(settings))
    await pool.close()


async def recorded(uri: str, results: Sequence[Result]) -> None:
    async with running_recorder(uri) as recorder:
        recorder.add(results)
        await recorder.drained()


@pytest.mark.parametrize(("report", "kind"), [(BOUNCE, "bounced"), (FEEDBACK, "complained")])
async def test_a_report_about_delivered_mail_is_an_event_of_its_recipient(
    factory: Factory, database: str, hooked: Hook, hooks: Make, screen: Screen, report: str, kind: str
) -> None:
    taker = await hooks()
    hook = hooked(taker.url, events=["delivered", kind])
    message = factory.message()
    row = factory.row(message=message)
    await recorded(database, [finished(c, DELIVERED, "success") for c in await claim(database)])
    factory.row(domain="bounces.example")
    [claimed] = await claim(database)
    for _ in range(2):  # a worker that dies reads the report again
        [read], _ = await screen.look([claimed], report.format(message=message).encode())
    await recorded(database, [read])
    await hook.settled()
    events = [event for event in taker.taken if event["data"]["recipient"] == "r1@example.com"]
    assert [event["type"] for event in events] == ["delivered", kind]
    assert (events[1]["data"]["id"], events[1]["data"]["message"]) == (row, str(message))
    if kind == "bounced":
        assert events[1]["data"]["reason"].startswith("5.1.1")


async def test_a_suppressed_recipient_is_an_event(
    factory: Factory, database: str, hooked: Hook, hooks: Make, screen: Screen
) -> None:
    taker = await hooks()
    hook = hooked(taker.url, events=["suppressed", "failed"])
    factory.rows(2)
    factory.sql(
        "INSERT INTO pillarbox.suppressions (target, reason, source) VALUES ('r1@example.com', 'x', 'operator')"
    )
    claimed = await claim(database)
    done, left = await screen.look(claimed, b"Subject: x\r\n\r\n")
    refused = Outcome("failed", "us", None, "5.7.1", "refused by us")
    others = [Result(c, refused, None, timedelta(0), "rejected", None) for c in left]
    await recorded(database, [*done, *others])
    await hook.settled()
    assert sorted((event["type"], event["data"]["recipient"]) for event in taker.taken) == [
        ("failed", "r2@example.com"),
        ("suppressed", "r1@example.com"),
    ]
