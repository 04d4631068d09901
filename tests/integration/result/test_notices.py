"""test_notices — the statement that records a result also writes the notice for its sender

Owns: the matrix of NOTIFY and outcome; a delay is notified once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from queued.result import Recorder
from queued.values import OnHold, Result, Spoken
from tests.fixtures.database.results import DEFERRED, DELIVERED, FAILED, claim, deferred, finished, running_recorder

if TYPE_CHECKING:
    from queued.values import Claimed
    from tests.fixtures.database.factory import Factory

UNTIL = datetime(2030, 1, 6, 12, tzinfo=UTC)


def late(c: Claimed) -> Result:
    """A try after which another follows, of mail that is late."""
    return deferred(c, datetime.now(UTC) + timedelta(hours=1))._replace(late=UNTIL)


MADE: dict[str, Any] = {
    "success": lambda c: finished(c, DELIVERED, "success"),
    "success to a host with DSN": lambda c: finished(c, DELIVERED, "success")._replace(spoken=Spoken(dsn=True)),
    "failed": lambda c: finished(c, FAILED, "failed"),
    "expired": lambda c: finished(c, DEFERRED, "expired"),
    "rejected": lambda c: finished(c, FAILED, "rejected"),
    "deferred": lambda c: deferred(c, datetime.now(UTC) + timedelta(hours=1)),
    "late": late,
    "held": lambda c: Result(c, FAILED, None, timedelta(0), None, None, held=OnHold("why", "q")),
}
UNSAID = {"failed": "failed", "expired": "failed", "rejected": "failed", "late": "delayed"}


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize(
    ("notify", "expected"),
    [
        (None, UNSAID),
        (["NEVER"], {}),
        (["SUCCESS"], {"success": "relayed"}),
        (["FAILURE"], {"failed": "failed", "expired": "failed", "rejected": "failed"}),
        (["DELAY"], {"late": "delayed"}),
        (["DELAY", "FAILURE", "SUCCESS"], {**UNSAID, "success": "relayed"}),
    ],
)
async def test_notify_decides_about_notices(
    factory: Factory, made: str, notify: list[str] | None, expected: dict[str, str]
) -> None:
    factory.row()
    if notify is not None:
        factory.sql(
            "UPDATE pillarbox.queue SET metadata = coalesce(metadata, '{}') || jsonb_build_object('_dsn',"
            " jsonb_build_object('notify', %(notify)s::text[], 'envid', 'e1'))",
            notify=notify,
        )
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        recorder.add([MADE[made](c)])
        await recorder.drained()
    assert [notice.kind for notice in notices(factory)] == ([expected[made]] if made in expected else [])


def notices(factory: Factory) -> list[Any]:
    """The outbox."""
    return factory.sql("SELECT * FROM pillarbox.notices ORDER BY id")


async def test_a_notice_has_every_field_of_the_result(factory: Factory) -> None:
    message = factory.message()
    [row] = factory.queue(factory.row(message=message))
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        recorder.add([finished(c, FAILED, "failed")])
        await recorder.drained()
    [notice] = notices(factory)
    assert (notice.kind, notice.messages__id, notice.queue__id) == ("failed", message, c.id)
    assert (notice.senderlocalpart, notice.senderdomain) == (row.senderlocalpart, row.senderdomain)
    assert (notice.recipientlocalpart, notice.recipientdomain) == (row.recipientlocalpart, row.recipientdomain)
    assert (notice.remote, notice.reply_code, notice.reply_enhanced) == ("192.0.2.25:25", 550, "5.1.1")
    assert (notice.reply_text, notice.arrived, notice.metadata) == (FAILED.text, row.ts, row.metadata)
    assert notice.will_retry_until is None


async def test_a_delay_is_noted_once(factory: Factory) -> None:
    id_ = factory.row()
    async with running_recorder(factory.uri) as recorder:
        for _ in range(3):
            [c] = await claim(factory.uri)
            recorder.add([late(c)])
            await recorder.drained()
            factory.sql("UPDATE pillarbox.queue SET next_retry = now()")
    [notice] = notices(factory)
    assert (notice.kind, notice.will_retry_until) == ("delayed", UNTIL)
    assert factory.queue(id_)[0].noticed == notice.ts
    assert len(factory.attempts()) == 3


async def test_mail_from_the_null_sender_causes_no_notice(factory: Factory) -> None:
    factory.rows(count=2)
    factory.sql("UPDATE pillarbox.queue SET senderlocalpart = NULL, senderdomain = NULL")
    async with running_recorder(factory.uri) as recorder:
        one, two = await claim(factory.uri)
        recorder.add([finished(one, FAILED, "failed"), late(two)])
        await recorder.drained()
    assert notices(factory) == []
    assert len(factory.attempts()) == 2


async def test_a_late_result_causes_no_notice(factory: Factory) -> None:
    """Another worker holds the claim; only that worker writes the notice."""
    factory.row()
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        factory.sql("UPDATE pillarbox.queue SET token = token + 1")
        recorder.add([finished(c, FAILED, "failed")])
        await recorder.drained()
    assert notices(factory) == []


async def test_with_bounces_disabled_no_notice_is_written(factory: Factory) -> None:
    factory.row()
    async with running_recorder(factory.uri, notices=False) as recorder:
        assert isinstance(recorder, Recorder)
        [c] = await claim(factory.uri)
        recorder.add([finished(c, FAILED, "failed")])
        await recorder.drained()
    assert notices(factory) == []


async def test_mail_on_hold_causes_no_delay_notice(factory: Factory) -> None:
    held, other = factory.rows(2)
    async with running_recorder(factory.uri) as recorder:
        taken = await claim(factory.uri)
        factory.move([held], "HOLD")
        recorder.add([late(c) for c in taken])
        await recorder.drained()
    assert [notice.queue__id for notice in factory.sql("SELECT queue__id FROM pillarbox.notices")] == [other]
    # The notice is still to be sent if the mail is released and late.
    noticed = factory.sql("SELECT id, noticed IS NOT NULL AS noticed FROM pillarbox.queue")
    assert {row.id: row.noticed for row in noticed} == {held: False, other: True}
