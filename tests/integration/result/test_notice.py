"""test_notice — senders are notified once, together, at a bounded rate, and never about a bounce

Owns: proofs about queued/dsn/send.py, sql/schema/11_notice.sql and the queries notice_*.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
import pytest

from queued.dsn import send
from shared.postgres import database as db
from shared.postgres.queries import query
from tests.fixtures.database.notices import GONE, ORIGINAL, fields, noted, notifier, sent
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard


async def test_recipients_of_one_message_share_a_notification(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    message = factory.message(ORIGINAL)
    dsn = '{"_dsn": {"envid": "QQ314", "ret": "FULL", "orcpt": ["rfc822", "old@example.com"]}}'
    noted(factory, message=message, metadata=dsn)
    noted(factory, message=message, recipientlocalpart="r2", reply_code=None, reply_text="too old", remote=None)
    assert await notifier().send_due(connection) == 1
    [(whom, report)] = sent(factory)
    assert whom == "app@sender.example"
    assert (report["Auto-Submitted"], report.get_content_type()) == ("auto-replied", "multipart/report")
    assert report.get_param("report-type") == "delivery-status"
    of_message, first, second = fields(report)
    assert (of_message["Original-Envelope-Id"], of_message["Reporting-MTA"]) == ("QQ314", "dns; mx.test")
    assert first["Original-Recipient"] == "rfc822; old@example.com"
    assert (first["Final-Recipient"], first["Action"], first["Status"]) == ("rfc822; r1@example.com", "failed", "5.1.1")
    assert (first["Remote-MTA"], first["Diagnostic-Code"]) == ("dns; mail.example.com", "smtp; 550 5.1.1 Nobody")
    assert (second["Remote-MTA"], second["Diagnostic-Code"]) == (None, "X-Pillarbox; too old")
    [returned] = [part for part in report.walk() if part.get_content_type() == "message/rfc822"]
    assert returned.as_bytes().replace(b"\r\n", b"\n").endswith(ORIGINAL.replace(b"\r\n", b"\n"))
    assert factory.one(GONE) == 0
    assert await notifier().send_due(connection) == 0
    [event] = heard.all("notice.sent")
    assert (event["kind"], event["about"], event["recipients"]) == ("failed", message, 2)


async def test_the_first_notification_by_a_new_transport_does_not_wait_for_the_register(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    """Before, a worker that had just got it put the notification off by an hour: its own register refused it."""
    factory.sql("INSERT INTO pillarbox.transports VALUES ('default', now())")
    noted(factory)
    assert await notifier(transport="bounces").send_due(connection) == 1
    assert heard.all("notice.refused") == []
    assert factory.one("SELECT transportid FROM pillarbox.queue") == "bounces"


async def test_looking_for_notices_writes_nothing_where_there_are_none(
    factory: Factory, connection: db.Connection
) -> None:
    """Before, each worker wrote to the disk every second to take the lock."""
    noted(factory)
    async with connection.transaction():
        assert await notifier(gather="1h").send_due(connection) == 0
        [[written]] = await (await connection.execute("SELECT pg_current_xact_id_if_assigned()")).fetchall()
    assert written is None


async def test_kinds_and_messages_have_separate_notifications(factory: Factory, connection: db.Connection) -> None:
    message = factory.message(ORIGINAL)
    noted(factory, message=message)
    noted(factory, message=message, kind="delayed", reply_code=451, reply_enhanced="4.7.1", reply_text="451 later")
    noted(factory)
    assert await notifier().send_due(connection) == 3
    actions = [fields(report)[1]["Action"] for _, report in sent(factory)]
    assert actions == ["failed", "delayed", "failed"]


@pytest.mark.parametrize(
    ("ret", "size", "returned"),
    [
        ("FULL", 1000, "message/rfc822"),
        (None, 1000, "message/rfc822"),
        ("HDRS", 1000, "text/rfc822-headers"),
        ("FULL", 50, "text/rfc822-headers"),
    ],
)
async def test_ret_and_size_decide_the_returned_part(
    factory: Factory, connection: db.Connection, ret: str | None, size: int, returned: str
) -> None:
    noted(factory, metadata=f'{{"_dsn": {{"ret": "{ret}"}}}}' if ret else None)
    await notifier(size=size).send_due(connection)
    [(_, report)] = sent(factory)
    types = [part.get_content_type() for part in report.iter_parts()]
    assert types == ["text/plain", "message/delivery-status", returned]
    assert ("The body." in report.as_string()) == (returned == "message/rfc822")
    assert "Subject: original" in report.as_string()


async def test_a_rate_delays_notifications_and_loses_none(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    for _ in range(3):
        noted(factory)
    noted(factory, sender="other@sender.example")
    limited = notifier(rate={"persender": 2})
    assert await limited.send_due(connection) == 3
    assert sorted(whom for whom, _ in sent(factory)) == ["app@sender.example"] * 2 + ["other@sender.example"]
    [held] = heard.all("notice.held_back")
    assert (held["sender"], held["notices"]) == ("app@sender.example", 1)
    assert factory.one(f"{GONE} WHERE due > now()") == 1
    # The next hour.
    factory.sql("UPDATE pillarbox.notice_counts SET hour = hour - interval '1 hour'")
    factory.sql("UPDATE pillarbox.notices SET due = now()")
    assert await limited.send_due(connection) == 1
    assert factory.one(GONE) == 0


async def test_the_overall_rate_applies_to_all_senders(factory: Factory, connection: db.Connection) -> None:
    for number in range(3):
        noted(factory, sender=f"app{number}@sender.example")
    assert await notifier(rate={"overall": 1}).send_due(connection) == 1
    assert factory.one(f"{GONE} WHERE due > now()") == 2


async def test_the_postmaster_gets_a_copy_of_failures(factory: Factory, connection: db.Connection) -> None:
    noted(factory)
    noted(factory, kind="delayed")
    await notifier(postmaster="postmaster@ours.example").send_due(connection)
    assert [(whom, report["Subject"]) for whom, report in sent(factory)] == [
        ("app@sender.example", "Undelivered Mail Returned to Sender"),
        ("postmaster@ours.example", "Postmaster Copy: Undelivered Mail Returned to Sender"),
        ("app@sender.example", "Delayed Mail (still being retried)"),
    ]
    assert "The body." not in sent(factory)[1][1].as_string()


async def test_a_notification_that_postgresql_refuses_waits_and_stops_no_other(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    noted(factory, sender="app@bad..domain")
    noted(factory)
    assert await notifier().send_due(connection) == 1
    assert [whom for whom, _ in sent(factory)] == ["app@sender.example"]
    assert factory.one(f"{GONE} WHERE due > now() + interval '59 minutes'") == 1
    assert len(heard.all("notice.refused")) == 1


FORGET = "SELECT pillarbox.maintain_forget_notices(now() + %(later)s, '30 days', 100)"


async def test_notifications_delayed_by_a_rate_are_kept(factory: Factory, connection: db.Connection) -> None:
    for _ in range(3):
        noted(factory)
    limited = notifier(rate={"persender": 1})
    assert await limited.send_due(connection) == 1
    factory.sql(FORGET, later=timedelta(days=400))
    assert factory.one(GONE) == 2


async def test_a_long_refused_notification_is_deleted(factory: Factory, connection: db.Connection) -> None:
    noted(factory, sender="app@bad..domain")
    assert await notifier().send_due(connection) == 0
    since = factory.one("SELECT refused FROM pillarbox.notices")
    factory.sql("UPDATE pillarbox.notices SET due = now()")
    await notifier().send_due(connection)
    assert factory.one("SELECT refused FROM pillarbox.notices") == since  # from the first time on
    factory.sql(FORGET, later=timedelta(days=29))
    assert factory.one(GONE) == 1
    factory.sql(FORGET, later=timedelta(days=31))
    assert factory.one(GONE) == 0


def test_minutes_of_streams_are_deleted_as_late_as_history(factory: Factory) -> None:
    factory.sql("INSERT INTO pillarbox.report_minutes VALUES (now() - interval '29 days', 'delivered', 1, 1)")
    factory.sql(FORGET, later=timedelta(0))
    assert factory.one("SELECT count(*) FROM pillarbox.report_minutes") == 1
    factory.sql(FORGET, later=timedelta(days=2))
    assert factory.one("SELECT count(*) FROM pillarbox.report_minutes") == 0


async def test_the_body_stays_until_its_sender_is_notified(factory: Factory, connection: db.Connection) -> None:
    message = factory.message(ORIGINAL)
    row = factory.row(message=message)
    noted(factory, message=message)
    factory.sql("DELETE FROM pillarbox.queue WHERE id = %(row)s", row=row)
    sweep = "SELECT pillarbox.maintain_sweep(now() + interval '1 day', '0', '0', 100)"
    factory.sql(sweep)
    assert factory.one("SELECT count(*) FROM pillarbox.messages") == 1
    await notifier().send_due(connection)
    factory.sql("SELECT pillarbox.maintain_sweep(now() + interval '3 days', '0', '0', 100)")
    assert [report.get_content_type() for _, report in sent(factory)] == ["multipart/report"]
    assert factory.one("SELECT count(*) FROM pillarbox.messages WHERE id = %(id)s", id=message) == 0


async def test_a_crash_before_commit_leaves_the_notice_and_no_mail(factory: Factory, database: str) -> None:
    """Everything was done but COMMIT when the connection died: as SIGKILL leaves it."""
    noted(factory)
    connection = await db.connect(database, "dies")

    @asynccontextmanager
    async def killed() -> AsyncIterator[None]:
        await connection.execute("BEGIN")
        yield
        factory.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'dies'")
        await connection.execute("COMMIT")

    connection.transaction = killed  # type: ignore[method-assign, assignment]
    with pytest.raises(db.OUTAGE):
        await notifier().send_due(connection)
    assert sent(factory) == []
    assert factory.one(GONE) == 1
    again = await db.connect(database, "lives")
    async with again:
        assert await notifier().send_due(again) == 1
    assert len(sent(factory)) == 1


async def test_concurrent_workers_send_each_notification_once(factory: Factory, database: str) -> None:
    for _ in range(20):
        noted(factory)
    connections = [await db.connect(database, f"worker {number}") for number in range(3)]
    counts = await asyncio.gather(*(notifier(rate={}).send_due(each) for each in connections))
    for each in connections:
        await each.close()
    async with await db.connect(database, "rest") as rest:
        counts.append(await notifier().send_due(rest))
    assert sum(counts) == 20
    assert len(sent(factory)) == 20


async def test_with_bounces_disabled_notices_are_dropped(factory: Factory, database: str) -> None:
    noted(factory)
    pool = await db.open_pool(database, "discarding", 1)
    running = asyncio.create_task(send.run(pool, notifier(enabled=False)))
    try:
        await eventually(lambda: factory.one(GONE) == 0, "the notice is dropped")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await pool.close()
    assert sent(factory) == []


@pytest.mark.parametrize("asked", [True, False])
async def test_a_notification_and_its_copy_keep_requiretls(
    factory: Factory, connection: db.Connection, *, asked: bool
) -> None:
    noted(factory, metadata='{"_requiretls": true}' if asked else None)
    assert await notifier(postmaster="postmaster@mx.test").send_due(connection) == 1
    rows = factory.sql("SELECT metadata ? '_requiretls' AS asks FROM pillarbox.queue WHERE serverid = 'bounce'")
    assert [row.asks for row in rows] == [asked, asked]


@pytest.mark.counts_pages
async def test_notices_that_are_gone_are_not_scanned_again_while_a_snapshot_is_held(
    factory: Factory, connection: db.Connection
) -> None:
    """As the floors of claims: tests/integration/claim/test_floors.py."""
    factory.sql("ALTER TABLE pillarbox.notices SET (autovacuum_enabled = off)")
    message = factory.message(ORIGINAL)
    with factory.another() as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT count(*) FROM pillarbox.settings")
        noted(factory, message=message)
        factory.sql(
            """INSERT INTO pillarbox.notices (due, kind, messages__id, queue__id, senderlocalpart, senderdomain,
                                              recipientlocalpart, recipientdomain, arrived)
               SELECT due - n * interval '1 s', kind, gen_random_uuid(), queue__id, senderlocalpart, senderdomain,
                      recipientlocalpart, recipientdomain, arrived
                 FROM pillarbox.notices, generate_series(1, 20000) AS n"""
        )
        factory.sql("DELETE FROM pillarbox.notices WHERE messages__id <> %(m)s", m=message)
        sender = notifier()
        assert await sender.send_due(connection) == 1
        noted(factory)
        assert await blocks(connection, None) > 10 * await blocks(connection, sender._floor.take())
        assert await sender.send_due(connection) == 1


async def test_holding_back_one_sender_reads_no_notices_of_others(factory: Factory, connection: db.Connection) -> None:
    noted(factory)
    factory.sql(
        """INSERT INTO pillarbox.notices (due, kind, messages__id, queue__id, senderlocalpart, senderdomain,
                                          recipientlocalpart, recipientdomain, arrived)
           SELECT due - n * interval '1 s', kind, gen_random_uuid(), queue__id, 'other' || n % 100, senderdomain,
                  recipientlocalpart, recipientdomain, arrived
             FROM pillarbox.notices, generate_series(1, 20000) AS n"""
    )
    factory.sql("ANALYZE pillarbox.notices")
    [own] = factory.sql("SELECT senderlocalpart, senderdomain FROM pillarbox.notices WHERE senderlocalpart !~ '^other'")
    later = factory.one("SELECT now() + interval '1 hour'")
    values = {"localpart": own.senderlocalpart, "domain": own.senderdomain, "due": later, "floor": None, "batch": 10000}
    assert await read(connection, "notice_hold_back_sender", values) < 50
    [held] = await db.fetch(connection, "notice_hold_back_sender", **values)
    assert held.notices == 1


async def blocks(connection: db.Connection, floor: datetime | None) -> int:
    """How many blocks a look for notices reads from this floor on."""
    return await read(connection, "notice_next", {"now": None, "floor": floor, "gather": timedelta(), "batch": 100})


async def read(connection: db.Connection, name: LiteralString, values: dict[str, Any]) -> int:
    """How many blocks a query reads, without what it changes."""
    text = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) " + query(name)
    async with connection.transaction(force_rollback=True):
        [[[plan]]] = await (await connection.execute(text.encode(), values)).fetchall()
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


async def test_a_notice_that_was_due_before_others_but_committed_after_them_is_found(
    factory: Factory, connection: db.Connection
) -> None:
    sender = notifier()
    noted(factory)
    assert await sender.send_due(connection) == 1
    noted(factory, due=factory.one("SELECT now() - interval '1 hour'"))
    assert await sender.send_due(connection) == 0
    sender._floor._full.hurry()
    assert await sender.send_due(connection) == 1


async def test_many_notices_are_held_back_some_at_a_time(
    factory: Factory, connection: db.Connection, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "_HELD", 2)
    for _ in range(6):
        noted(factory)
    assert await notifier(rate={"overall": 1}).send_due(connection) == 1
    assert [event["notices"] for event in heard.all("notice.held_back")] == [2, 2, 1]
    assert factory.one("SELECT count(*) FROM pillarbox.notices WHERE due > now()") == 5
