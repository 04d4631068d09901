"""test_result — a result is recorded once, for its own claim, with every detail of the try

Owns: proofs about queued/result.py and result_record_if_claimed.sql; test_trouble.py has outages and refusals.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.database.results import (
    DEFERRED,
    DELIVERED,
    FAILED,
    Held,
    claim,
    deferred,
    finished,
    running_recorder,
)

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard


async def test_success_archives_the_recipient_and_releases_the_body(factory: Factory, heard: Heard) -> None:
    message = factory.message()
    before = factory.queue(factory.row(message=message, partid="4", tries=2, transportid="relay"))[0]
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        recorder.add([finished(c, DELIVERED, "success")])
        await recorder.drained()
    assert factory.queue() == []
    [archived] = factory.archive()
    for column in ("id", "messages__id", "actionid", "ts", "recipientdomain", "size", "metadata", "transportid"):
        assert getattr(archived, column) == getattr(before, column)
    assert (archived.result, archived.retry_count, archived.worker) == ("success", 3, "worker under test")
    assert archived.last_error is None
    [attempt] = factory.attempts()
    assert (attempt.queue__id, attempt.token, attempt.retry_count, attempt.partid) == (c.id, c.token, 3, "4")
    assert (attempt.outcome, attempt.scope, attempt.uncertain) == ("delivered", "recipient", False)
    assert (attempt.reply_code, attempt.reply_enhanced, attempt.reply_text) == (250, "2.0.0", "250 2.0.0 Ok")
    assert (attempt.remote, attempt.duration) == ("192.0.2.25:25", timedelta(seconds=1.5))
    body = factory.bodies()[message]
    assert body.refcount == 0
    assert body.released is not None
    [said] = heard.all("result.delivered")
    assert (said["id"], said["tries"], said["reply"]) == (message, 3, "250 2.0.0 Ok")


async def test_a_deferral_sets_the_next_try_and_releases_the_claim(factory: Factory, heard: Heard) -> None:
    id_ = factory.row()
    due = datetime.now(UTC) + timedelta(minutes=15)
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        recorder.add([deferred(c, due)])
        await recorder.drained()
    [row] = factory.queue(id_)
    assert (row.next_retry, row.last_error, row.retry_count) == (due, DEFERRED.text, 1)
    assert (row.token, row.worker, row.lease_until) == (None, None, None)
    assert [attempt.outcome for attempt in factory.attempts()] == ["deferred"]
    assert factory.archive() == []
    assert heard.all("result.deferred")[0]["next_retry"] == due.isoformat(timespec="seconds")
    # A deferred row is not an expired lease: the next claim must not report it as lost.
    factory.sql("UPDATE pillarbox.queue SET next_retry = now()")
    assert len(await claim(factory.uri)) == 1
    assert len(factory.attempts()) == 1


@pytest.mark.parametrize("result", ["failed", "expired"])
async def test_a_failed_recipient_is_archived_with_the_last_reply(factory: Factory, heard: Heard, result: str) -> None:
    factory.row()
    outcome = FAILED if result == "failed" else DEFERRED
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        recorder.add([finished(c, outcome, result)])
        await recorder.drained()
    [archived] = factory.archive()
    assert (archived.result, archived.last_error) == (result, outcome.text)
    assert [attempt.outcome for attempt in factory.attempts()] == [outcome.kind]
    assert [said["result"] for said in heard.all("result.failed")] == [result]


async def test_a_stale_token_changes_no_row_and_keeps_its_attempt(factory: Factory, heard: Heard) -> None:
    id_ = factory.row()
    async with running_recorder(factory.uri) as recorder:
        [mine] = await claim(factory.uri)
        factory.sql("UPDATE pillarbox.queue SET lease_until = now() - interval '1 second'")
        [theirs] = await claim(factory.uri)
        for late in (finished(mine, DELIVERED, "success"), deferred(mine, datetime.now(UTC))):
            recorder.add([late])
            await recorder.drained()
            [row] = factory.queue(id_)
            assert (row.token, row.retry_count, row.last_error) == (theirs.token, 2, None)
            assert row.lease_until is not None
        recorder.add([finished(theirs, DELIVERED, "success")])
        await recorder.drained()
    tried = [(attempt.token, attempt.outcome) for attempt in factory.attempts()]
    assert tried == [
        (mine.token, "lease_expired"),
        (mine.token, "delivered"),
        (mine.token, "deferred"),
        (theirs.token, "delivered"),
    ]
    assert [(lost["recipient_id"], lost["outcome"]) for lost in heard.all("claim.lost")] == [
        (id_, "delivered"),
        (id_, "deferred"),
    ]
    assert len(factory.archive()) == len(heard.all("result.delivered")) == 1


async def test_a_missing_row_is_a_lost_claim(factory: Factory, heard: Heard) -> None:
    factory.row()
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        factory.sql("DELETE FROM pillarbox.queue")
        recorder.add([finished(c, DELIVERED, "success")])
        await recorder.drained()
    assert factory.archive() == []
    assert len(factory.attempts()) == len(heard.all("claim.lost")) == 1


@pytest.mark.parametrize("status", ["HOLD", "DELETE", "BOUNCE"])
async def test_a_delivery_is_final_despite_a_concurrent_hold_or_deletion(
    factory: Factory, heard: Heard, status: str
) -> None:
    message = factory.message()
    id_ = factory.row(message=message)
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        factory.move([id_], status)
        recorder.add([finished(c, DELIVERED, "success")])
        await recorder.drained()
    assert factory.queue() == []
    assert [archived.result for archived in factory.archive()] == ["success"]
    assert factory.bodies()[message].refcount == 0
    assert heard.all("claim.lost") == []


async def test_a_recipient_held_during_a_deferral_stays_held(factory: Factory) -> None:
    id_ = factory.row()
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        factory.move([id_], "HOLD")
        recorder.add([deferred(c, datetime.now(UTC))])
        await recorder.drained()
    [row] = factory.queue(id_)
    assert (row.status, row.leaf, row.token, row.last_error) == ("HOLD", "queue_hold", None, DEFERRED.text)


async def test_a_recipient_held_when_it_expires_stays_held_without_a_notice(factory: Factory, heard: Heard) -> None:
    id_, other = factory.rows(2)
    due = factory.queue(id_)[0].next_retry
    async with running_recorder(factory.uri) as recorder:
        taken = await claim(factory.uri)
        factory.move([id_], "HOLD")
        recorder.add([finished(c, DEFERRED, "expired") for c in taken])
        await recorder.drained()
    [row] = factory.queue()
    assert (row.id, row.status, row.token, row.last_error) == (id_, "HOLD", None, DEFERRED.text)
    assert (row.next_retry, row.retry_count) == (due, 1)
    assert [archived.id for archived in factory.archive()] == [other]
    assert len(factory.attempts()) == 2
    assert [notice.queue__id for notice in factory.sql("SELECT queue__id FROM pillarbox.notices")] == [other]
    assert [len(heard.all(f"result.{kind}")) for kind in ("deferred", "failed")] == [1, 1]
    assert heard.all("claim.lost") == []


async def test_a_batch_of_all_kinds_is_recorded(factory: Factory, heard: Heard) -> None:
    message = factory.message()
    for partid in ("1", "4", None):
        factory.rows(400, message=message, partid=partid)
    due = datetime.now(UTC) + timedelta(hours=1)
    async with running_recorder(factory.uri) as recorder:
        taken = await claim(factory.uri, 1200)
        lost = {c.id for c in taken[3::4]}
        factory.sql("UPDATE pillarbox.queue SET token = token + 1000000 WHERE id = ANY(%(ids)s)", ids=list(lost))
        recorder.add([finished(c, DELIVERED, "success") for c in taken[0::4]])
        recorder.add([deferred(c, due) for c in taken[1::4]])
        recorder.add([finished(c, FAILED, "failed") for c in taken[2::4]])
        recorder.add([finished(c, DELIVERED, "success") for c in taken[3::4]])
        await recorder.drained()
        assert recorder.unrecorded == 0
    archive = {archived.id: archived.result for archived in factory.archive()}
    assert archive == {c.id: "success" for c in taken[0::4]} | {c.id: "failed" for c in taken[2::4]}
    rows = {row.id: row for row in factory.queue()}
    assert rows.keys() == {c.id for c in taken[1::4]} | lost
    assert all(rows[c.id].next_retry == due for c in taken[1::4])
    assert {fields["recipient_id"] for fields in heard.all("claim.lost")} == lost
    assert len(factory.attempts()) == 1200
    assert factory.bodies()[message].refcount == 600


async def test_results_close_in_time_share_a_commit_while_attempts_run(factory: Factory, heard: Heard) -> None:
    factory.row()
    factory.row()
    async with running_recorder(factory.uri, in_flight=Held(100)) as recorder:
        one, other = await claim(factory.uri)
        recorder.add([finished(one, DELIVERED, "success")])
        for _ in range(10):  # the recorder runs, and would have taken it
            await asyncio.sleep(0)
        recorder.add([finished(other, DELIVERED, "success")])
        await recorder.drained()
    assert [said["results"] for said in heard.all("result.group")] == [2]
