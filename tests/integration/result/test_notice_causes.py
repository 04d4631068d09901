"""test_notice_causes — the results that cause a notification, and those that do not

Owns: the matrix of NOTIFY and outcome; mail from the null sender; bounces by operators.
See: RFC 3461 section 4.1; queued/dsn/requested.py; queued/dsn/send.py.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.database.notices import GONE, fields, notifier, sent
from tests.fixtures.database.results import DELIVERED, FAILED, claim, deferred, finished, running_recorder

if TYPE_CHECKING:
    from shared.postgres import database as db
    from tests.fixtures.database.factory import Factory


@pytest.mark.parametrize(
    ("notify", "failed", "delivered", "delayed"),
    [
        (None, ["failed"], [], ["delayed"]),
        (["NEVER"], [], [], []),
        (["FAILURE"], ["failed"], [], []),
        (["SUCCESS"], [], ["relayed"], []),
        (["DELAY", "SUCCESS"], [], ["relayed"], ["delayed"]),
    ],
)
async def test_notify_decides_which_outcomes_are_noted(
    factory: Factory,
    database: str,
    notify: list[str] | None,
    failed: list[str],
    delivered: list[str],
    delayed: list[str],
) -> None:
    ids = factory.rows(3)
    if notify:
        words = '", "'.join(notify)
        factory.sql(
            "UPDATE pillarbox.queue SET metadata = metadata || %(dsn)s::jsonb",
            dsn=f'{{"_dsn": {{"notify": ["{words}"]}}}}',
        )
    first, second, third = sorted(await claim(database), key=lambda c: c.id)
    late = third.now() + timedelta(hours=1)
    async with running_recorder(database) as recorder:
        recorder.add(
            [
                finished(first, FAILED, "failed"),
                finished(second, DELIVERED, "success"),
                deferred(third, late)._replace(late=late),
            ]
        )
        await recorder.drained()
    kinds = {row.queue__id: row.kind for row in factory.sql("SELECT queue__id, kind FROM pillarbox.notices")}
    found = [[kinds[id_]] if id_ in kinds else [] for id_ in ids]
    assert found == [failed, delivered, delayed]


async def test_a_bounce_causes_no_notification(factory: Factory, database: str, connection: db.Connection) -> None:
    factory.row()
    factory.row(status="BOUNCE")
    factory.sql("UPDATE pillarbox.queue SET senderlocalpart = NULL, senderdomain = NULL")
    [first] = await claim(database)
    async with running_recorder(database) as recorder:
        recorder.add([finished(first, FAILED, "failed")])
        await recorder.drained()
    factory.sql("SELECT * FROM pillarbox.maintain_finish(now(), 'test', 10)")
    assert factory.one("SELECT count(*) FROM pillarbox.archive") == 2
    assert factory.one(GONE) == 0
    assert await notifier().send_due(connection) == 0


async def test_mail_bounced_by_an_operator_causes_a_notification(factory: Factory, connection: db.Connection) -> None:
    factory.row(status="BOUNCE")
    factory.sql("SELECT * FROM pillarbox.maintain_finish(now(), 'test', 10)")
    assert await notifier().send_due(connection) == 1
    [(whom, report)] = sent(factory)
    assert whom == "sender@sender.example"
    assert (fields(report)[1]["Status"], fields(report)[1]["Diagnostic-Code"]) == (
        "5.7.1",
        "X-Pillarbox; returned by the operator",
    )
