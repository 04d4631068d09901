"""test_dispatch_undeliverable — mail without a body is held at once; mail without a transport expires like other mail

Owns: proofs about recipients that queued.dispatch does not attempt to deliver.
See: test_holds.py for the function that holds; docs/reference/results.md, "On hold".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.fixtures.daemons.dispatching import dispatching
from tests.fixtures.heard import until

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

MINUTE = timedelta(minutes=1)


async def test_mail_without_a_body_is_held_and_not_tried_again(factory: Factory, heard: Heard) -> None:
    ids = factory.rows(2, message=(gone := factory.message()))
    factory.sql("DELETE FROM pillarbox.messages WHERE id = %(id)s", id=gone)
    async with dispatching(factory.uri, 9, MINUTE) as dispatcher:
        await until(lambda: {row.status for row in factory.queue()} == {"HOLD"}, "both to be held")
        await until(lambda: dispatcher.inflight == 0, "both to be recorded")
    assert [event["recipient_id"] for event in heard.all("body.missing")] == ids
    assert [row.metadata["_quarantineid"] for row in factory.queue()] == ["body", "body"]
    assert [row.outcome for row in factory.attempts()] == ["deferred", "deferred"]
    assert factory.archive() == []


async def test_mail_without_a_transport_is_deferred_by_the_usual_schedule_and_expires(
    factory: Factory, heard: Heard
) -> None:
    fresh = factory.row(transportid="fax")
    old = factory.row(transportid="fax", received=datetime.now(UTC) - timedelta(days=30), tries=3)
    async with dispatching(factory.uri, 9, MINUTE) as dispatcher:
        await heard.wait("result.failed")
        await heard.wait("result.deferred")
        await until(lambda: dispatcher.inflight == 0, "both to be recorded")
    [waiting] = factory.queue()
    assert (waiting.id, waiting.last_error) == (fresh, 'transport "fax" does not exist in queued.yaml')
    assert waiting.next_retry > waiting.last_retry
    assert [(row.id, row.result, row.last_error) for row in factory.archive()] == [
        (old, "expired", 'transport "fax" does not exist in queued.yaml')
    ]
