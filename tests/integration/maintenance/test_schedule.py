"""test_schedule — each occurrence is queued once, missed ones once together; a broken schedule stops no other

Owns: proofs about queued/schedule.py, sql/schema/16_schedule.sql and the queries schedule_*.
"""

from __future__ import annotations

import asyncio
import email.utils
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from queued import schedule
from shared.postgres import database as db
from tests.fixtures.waiting import in_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

CONTENT = b"Subject: report\r\n\r\nAs every minute.\r\n"
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def session(administrator: str) -> AsyncIterator[db.Connection]:
    """A connection that may take any role."""
    opened = await db.connect(administrator, "scheduler")
    yield opened
    await opened.close()


def scheduled(factory: Factory, name: str = "report", *, ago: timedelta = MINUTE, **columns: Any) -> datetime:
    """A schedule that is due since `ago`; returns that time."""
    values: dict[str, Any] = {
        "id": name,
        "cron": "0 * * * *",  # a time that comes between a look and the sending makes the next look send
        "timezone": "UTC",
        "sender": "robot@sender.example",
        "recipients": ["a@ash.example", "b@birch.example"],
        "content": CONTENT,
        **columns,
    }
    names = ", ".join(values)
    given = ", ".join(f"%({key})s" for key in values)
    text = f"INSERT INTO pillarbox.schedules ({names}, next_at) VALUES ({given}, now() - %(ago)s) RETURNING next_at"  # noqa: S608 - column names of ours
    [row] = factory.sql(text, ago=ago, **values)
    due: datetime = row.next_at
    return due


def schedules(factory: Factory) -> dict[str, Any]:
    return {row.id: row for row in factory.sql("SELECT * FROM pillarbox.schedules ORDER BY id")}


async def test_a_due_schedule_is_queued_and_gets_its_next_time(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    occurrence = scheduled(factory, metadata='{"tenant": "acme"}', priority=3, transportid="relay")
    before = datetime.now(UTC)  # an hour may end meanwhile
    assert await schedule.send_due(connection) == 1
    [first, second] = factory.queue()
    assert (first.recipientlocalpart, second.recipientdomain) == ("a", "birch.example")
    assert (first.priority, first.transportid, first.jobid, first.metadata["tenant"]) == (3, "relay", "report", "acme")
    assert first.next_retry <= datetime.now(UTC)
    left = schedules(factory)["report"]
    assert left.last_message == first.messages__id == second.messages__id
    assert left.next_at > before
    assert left.next_at - datetime.now(UTC) <= timedelta(hours=1)
    assert (left.enabled, left.error, left.last_at is not None) == (True, None, True)
    [event] = heard.all("schedule.sent")
    assert (event["schedule"], event["id"]) == ("report", left.last_message)
    assert event["occurrence"] == occurrence.isoformat(timespec="seconds")
    assert 60 <= event["seconds"] < 600
    key = factory.one("SELECT key FROM pillarbox.idempotency")
    assert key == f"schedule:report:{occurrence.astimezone(UTC):%Y%m%dT%H%M%SZ}"


async def test_each_occurrence_has_its_own_date_and_message_id(factory: Factory, connection: db.Connection) -> None:
    scheduled(factory)
    for hours in (2, 1):
        ago = timedelta(hours=hours)
        factory.sql("UPDATE pillarbox.schedules SET next_at = now() - %(ago)s", ago=ago)
        assert await schedule.send_due(connection) == 1
    contents = [bytes(row.content) for row in factory.sql("SELECT content FROM pillarbox.messages ORDER BY id")]
    ids = []
    for content in contents:
        found = re.match(rb"Date: ([^\r]+)\r\nMessage-ID: <([^\r>]+)@sender\.example>\r\n", content)
        assert found is not None, content
        assert content[found.end() :] == CONTENT
        age = datetime.now(UTC) - email.utils.parsedate_to_datetime(found[1].decode())
        assert timedelta(0) <= age < 30 * MINUTE
        assert re.fullmatch(rb"report\.\d{8}T\d{6}Z\.[0-9a-f]{8}", found[2])
        ids.append(found[2])
    assert len(set(ids)) == 2


async def test_missed_occurrences_are_sent_once(factory: Factory, connection: db.Connection, heard: Heard) -> None:
    scheduled(factory, ago=timedelta(days=3), recipients=["a@ash.example"])
    assert await schedule.send_due(connection) == 1
    assert await schedule.send_due(connection) == 0
    assert len(factory.queue()) == 1
    assert schedules(factory)["report"].next_at > datetime.now(UTC)
    assert heard.all("schedule.sent")[0]["seconds"] > timedelta(days=3).total_seconds()


async def test_many_workers_queue_each_occurrence_once(factory: Factory) -> None:
    names = [f"s{number}" for number in range(40)]
    for name in names:
        scheduled(factory, name, recipients=["a@ash.example"])
    workers = [await db.connect(factory.uri, f"worker {number}") for number in range(4)]
    try:
        sent = await asyncio.gather(*(schedule.send_due(worker) for worker in workers))
    finally:
        for worker in workers:
            await worker.close()
    assert sum(sent) == len(names)
    assert sorted(row.jobid for row in factory.queue()) == sorted(names)


async def test_a_locked_schedule_is_skipped_without_waiting(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    scheduled(factory, "held")
    scheduled(factory, "other")
    with factory.another() as other:
        other.execute("SELECT FROM pillarbox.schedules WHERE id = 'held' FOR UPDATE")
        assert await schedule.send_due(connection) == 1
    assert [fields["schedule"] for fields in heard.all("schedule.sent")] == ["other"]
    assert await schedule.send_due(connection) == 1


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"cron": "every day"}, "five fields"),
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"timezone": "Mars/Olympus"}, "not a time zone"),
        ({"recipients": ["nobody"]}, "nobody"),
        ({"recipients": []}, "recipient"),
        ({"sender": "a b@c"}, "a b@c"),
        ({"content": b"bare\nnewline\r\n"}, "CR LF"),
        ({"metadata": '{"_partid": "6"}'}, "reserved"),
    ],
)
async def test_a_failing_schedule_is_disabled_with_its_error_and_blocks_no_other(
    factory: Factory, connection: db.Connection, heard: Heard, columns: dict[str, Any], says: str
) -> None:
    scheduled(factory, "broken", **columns)
    scheduled(factory, "sound", recipients=["a@ash.example"])
    assert await schedule.send_due(connection) == 1
    assert [row.jobid for row in factory.queue()] == ["sound"]
    left = schedules(factory)
    assert left["sound"].enabled
    assert not left["broken"].enabled
    assert says in left["broken"].error
    assert heard.all("schedule.disabled") == [{"schedule": "broken", "error": left["broken"].error}]
    assert await schedule.send_due(connection) == 0
    assert len(heard.all("schedule.disabled")) == 1


async def test_a_disabled_schedule_is_not_sent(factory: Factory, connection: db.Connection) -> None:
    scheduled(factory, enabled=False)
    assert await schedule.send_due(connection) == 0
    assert factory.queue() == []


async def test_several_batches_are_sent_in_one_call(factory: Factory, connection: db.Connection) -> None:
    count = 2 * schedule._BATCH + 1
    for number in range(count):
        scheduled(factory, f"s{number:03}", recipients=["a@ash.example"])
    assert await schedule.send_due(connection) == count


async def test_mail_is_queued_at_its_time_and_not_at_the_next_glance(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "_GLANCE", 600.0)
    pool = await db.open_pool(factory.uri, "scheduler", 1)
    scheduled(factory, ago=timedelta(seconds=-2))
    running = asyncio.create_task(schedule.run(pool))
    try:
        [event] = await heard.wait("schedule.sent")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await pool.close()
    assert 0 <= event["seconds"] < 300


async def test_an_outage_delays_an_occurrence(factory: Factory, heard: Heard) -> None:
    pool = await db.open_pool(factory.uri, "scheduler", 1)
    try:
        async with in_background(schedule.run(pool)):
            factory.terminate("scheduler")
            scheduled(factory)
            await heard.wait("schedule.sent")
    finally:
        await pool.close()


async def test_an_occurrence_with_a_rolled_back_transaction_is_sent_later(
    factory: Factory, connection: db.Connection
) -> None:
    occurrence = scheduled(factory)
    send = "SELECT pillarbox.schedule_send('report', %(at)s, now() + interval '1 minute', now())"
    with factory.another() as other:
        assert other.execute(send, {"at": occurrence}).fetchone() is not None
    assert factory.queue() == []
    assert schedules(factory)["report"].next_at == occurrence
    assert await schedule.send_due(connection) == 1
    assert len(factory.queue()) == 2


async def test_the_next_occurrence_must_be_in_the_future(factory: Factory) -> None:
    occurrence = scheduled(factory)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="must be in the future"):
        factory.sql("SELECT pillarbox.schedule_send('report', %(at)s, now(), now())", at=occurrence)


async def test_an_occurrence_whose_next_one_has_passed_meanwhile_is_neither_sent_nor_disabled(
    factory: Factory, session: db.Connection
) -> None:
    occurrence = scheduled(factory)
    await session.execute("SET ROLE pillarbox_queued")
    [row] = await db.fetch(
        session, "schedule_send", schedule="report", occurrence=occurrence, following=occurrence + timedelta(seconds=1)
    )
    assert row.message is None
    assert factory.queue() == []
    assert await schedule.send_due(session) == 1


async def test_a_worker_can_send_a_schedule_but_not_read_or_change_it(factory: Factory, session: db.Connection) -> None:
    scheduled(factory)
    await session.execute("SET ROLE pillarbox_queued")
    for refused in (
        "SELECT content FROM pillarbox.schedules",
        "SELECT recipients FROM pillarbox.schedules",
        "UPDATE pillarbox.schedules SET sender = 'x@x.example'",
        "DELETE FROM pillarbox.schedules",
        "INSERT INTO pillarbox.schedules (id) VALUES ('x')",
        "SELECT pillarbox.enqueue('', '{a@b.example}', '')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await session.execute(refused)
    assert await schedule.send_due(session) == 1
    assert await schedule.until_next(session) <= schedule._GLANCE


@pytest.mark.parametrize("role", ["smtpd", "analyst", "reviewer", "application"])
async def test_other_roles_have_no_access_to_schedules(factory: Factory, session: db.Connection, role: str) -> None:
    scheduled(factory)
    await session.execute(f"SET ROLE pillarbox_{role}".encode())
    for refused in (
        "SELECT id FROM pillarbox.schedules",
        "SELECT pillarbox.schedule_send('report', now(), now())",
        "SELECT pillarbox.schedule_disable('report', now(), '')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await session.execute(refused)


async def test_a_missing_right_is_logged_and_disables_no_schedule(
    factory: Factory, session: db.Connection, heard: Heard
) -> None:
    scheduled(factory)
    factory.sql(
        "REVOKE EXECUTE ON FUNCTION pillarbox.schedule_send(text, timestamptz, timestamptz) FROM pillarbox_queued"
    )
    await session.execute("SET ROLE pillarbox_queued")
    assert await schedule.send_due(session) == 0
    assert schedules(factory)["report"].enabled
    assert "permission denied" in heard.all("schedule.failed")[0]["error"]
