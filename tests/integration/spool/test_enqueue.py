"""test_enqueue — an application queues mail in its own transaction: all or nothing, once, and only if valid

Owns: proofs about enqueue and enqueue_batch of sql/schema/07_enqueue.sql, up to a real worker that delivers.
See: docs/how-to/send/enqueue-from-sql.md; tests/integration/spool/test_enqueue_refused.py for refusals.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from queued.claiming.claim import Claimer
from shared.config.queued.settings import Claim
from shared.mail.partition import partition_id
from shared.postgres import database as db
from tests.fixtures.database.listening import LISTEN
from tests.fixtures.database.logins import name_of
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from uuid import UUID

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

CONTENT = b"Subject: invoice\r\n\r\nOctets: \xff\xfe\\ and a dot\r\n.\r\n"
ENQUEUE = "SELECT pillarbox.enqueue('a@sender.example', ARRAY['r@example.com'], %(content)s"


def enqueue(factory: Factory, arguments: str = "", **values: Any) -> UUID:
    """Call enqueue with a sender, a recipient, a content and these further arguments."""
    found: UUID = factory.one(f"{ENQUEUE}{arguments})", **{"content": CONTENT, **values})
    return found


async def test_committed_mail_is_delivered_and_rolled_back_mail_is_not(system: System, books: Books) -> None:
    await system.worker(books.sink.port)
    await system.rows("CREATE TABLE public.orders (id integer)")
    with psycopg.connect(system.uri) as application:
        application.execute("INSERT INTO public.orders VALUES (1)")
        application.execute("SELECT pillarbox.enqueue('gone@sender.example', ARRAY['r@example.com'], %s)", (CONTENT,))
        application.rollback()
        application.execute("INSERT INTO public.orders VALUES (2)")
        recipients = ["one@example.com", "two@example.org"]
        application.execute("SELECT pillarbox.enqueue('a@sender.example', %s, %s)", (recipients, CONTENT))
        for recipient in recipients:
            books.ledger.accept("a@sender.example", recipient, CONTENT)
        assert await system.value("SELECT count(*) FROM queue") == 0
        assert books.sink.received == []
        application.commit()
    await books.until_arrived(2)
    await system.until_finished()
    received = [(record.sender, record.recipients, record.content) for record in books.sink.received]
    assert sorted(received) == [("a@sender.example", (recipient,), CONTENT) for recipient in recipients] or sorted(
        received
    ) == [("a@sender.example", tuple(recipients), CONTENT)]
    assert await system.rows("SELECT id FROM public.orders") == [(2,)]
    assert await system.value("SELECT count(*) FROM archive") == 2
    assert await system.value("SELECT count(*) FROM idempotency") == 0


async def test_delayed_mail_is_sent_when_due(system: System, books: Books) -> None:
    await system.worker(books.sink.port, claim={"lease": "3s", "poll": "10m"})
    due = datetime.now(UTC) + timedelta(seconds=2)
    await system.rows(
        "SELECT pillarbox.enqueue('a@sender.example', ARRAY['r@example.com'], %s, deliver_at => %s)", CONTENT, due
    )
    assert await system.value("SELECT state FROM mail") == "SCHEDULED"
    await system.until_finished()
    [[first_try, received]] = await system.rows("SELECT t.ts, a.ts FROM attempts t, archive a")
    assert due <= first_try  # and long before the poll
    assert received == due  # its age begins when it is due


async def test_delayed_mail_is_not_claimed_early(factory: Factory) -> None:
    enqueue(factory, ", deliver_at => now() + interval '1 hour'")
    past = enqueue(factory, ", deliver_at => '-infinity'")
    connection = await db.connect(factory.uri, "worker under test")
    try:
        taken = await Claimer("true", "w@h:1", Claim()).take(connection, 10)
        assert [c.message_id for c in taken] == [past]
        assert 3000 < await Claimer("true", "w@h:1", Claim()).until_due(connection) <= 3600
    finally:
        await connection.close()


async def test_urgent_mail_is_claimed_first_and_bulk_last(factory: Factory) -> None:
    bulk, ordinary, urgent = (enqueue(factory, ", priority => %(p)s", p=p) for p in (-3, 0, 5))
    connection = await db.connect(factory.uri, "worker under test")
    try:
        taken = await Claimer("true", "w@h:1", Claim()).take(connection, 10)
    finally:
        await connection.close()
    assert [c.message_id for c in taken] == [urgent, ordinary, bulk]


def test_a_row_has_sender_recipient_and_login(factory: Factory) -> None:
    message = factory.one(
        """SELECT pillarbox.enqueue('Ann@Sender.Example', ARRAY['r@Example.COM', '"a b"@[192.0.2.1]'], %(content)s,
                  metadata => '{"order": "7"}', transportid => 'relay', jobid => 'spring', priority => 2)""",
        content=CONTENT,
    )
    first, second = factory.queue()
    assert (first.senderlocalpart, first.senderdomain) == ("Ann", "sender.example")
    assert (first.recipientlocalpart, first.recipientdomain, first.actionid) == ("r", "example.com", 1)
    assert (second.recipientlocalpart, second.recipientdomain, second.actionid) == ('"a b"', "[192.0.2.1]", 2)
    for row in (first, second):
        assert row.metadata == {"order": "7", "_partid": partition_id(row.recipientdomain, 6)}
        assert (row.transportid, row.jobid, row.priority, row.serverid) == ("relay", "spring", 2, "sql")
        assert (row.saslusername, row.size) == (factory.one("SELECT session_user"), len(CONTENT))
    body = factory.bodies()[message]
    assert (body.content, body.size, body.refcount, body.smtputf8) == (CONTENT, len(CONTENT), 2, False)
    assert message.version == 7


def test_ids_grow_with_time(factory: Factory) -> None:
    first = enqueue(factory)
    factory.sql("SELECT pg_sleep(0.002)")
    assert first < enqueue(factory)


def test_the_null_sender_and_international_addresses_are_queued(factory: Factory) -> None:
    message = factory.one("SELECT pillarbox.enqueue('', ARRAY['zoë@example.com'], 'x')")
    [row] = factory.queue()
    assert (row.senderlocalpart, row.senderdomain, row.recipientlocalpart) == (None, None, "zoë")
    assert factory.bodies()[message].smtputf8  # such an address cannot be said without it


def test_omitted_arguments_have_their_defaults(factory: Factory) -> None:
    enqueue(
        factory,
        ", NULL, NULL, priority => NULL, metadata => NULL, transportid => NULL, jobid => NULL, smtputf8 => NULL",
    )
    [row] = factory.queue()
    assert (row.priority, row.metadata, row.transportid, row.jobid) == (
        0,
        {"_partid": row.partid},
        "default",
        None,
    )
    assert row.partid is not None


def test_an_idempotency_key_queues_once_and_returns_the_first_id(factory: Factory) -> None:
    first = enqueue(factory, ", 'order-7'")
    assert enqueue(factory, ", 'order-7'") == first
    assert enqueue(factory, ", 'order-8'") != first
    assert len(factory.queue()) == 2


def test_eight_sessions_with_one_idempotency_key_queue_one_message(factory: Factory) -> None:
    begun = threading.Barrier(8)
    ids: list[UUID] = []

    def submit() -> None:
        with psycopg.connect(factory.uri) as session:
            begun.wait(20)
            ids.extend(row[0] for row in session.execute(f"{ENQUEUE}, 'one')".encode(), {"content": CONTENT}))

    sessions = [threading.Thread(target=submit) for _ in range(8)]
    for each in sessions:
        each.start()
    for each in sessions:
        each.join(20)
    assert len(ids) == 8
    assert len(set(ids)) == 1
    assert list(factory.bodies()) == [ids[0]]
    assert len(factory.queue()) == 1


def test_a_rolled_back_idempotency_key_can_be_used_again(factory: Factory) -> None:
    with factory.another() as session:
        session.execute(f"{ENQUEUE}, 'k')".encode(), {"content": CONTENT})
        session.rollback()
    enqueue(factory, ", 'k'")
    assert len(factory.queue()) == 1


def test_two_applications_may_use_the_same_idempotency_key(factory: Factory, logins: Logins) -> None:
    ids, names = [], []
    for _ in range(2):
        uri = logins.uri("application")
        names.append(name_of(uri))
        with psycopg.connect(uri, autocommit=True) as application:
            ids += [row[0] for row in application.execute(f"{ENQUEUE}, 'k')".encode(), {"content": CONTENT})]
    assert len(set(ids)) == 2
    assert [row.saslusername for row in factory.queue()] == names


def test_maintenance_deletes_old_idempotency_keys_in_batches(factory: Factory) -> None:
    first = enqueue(factory, ", 'old'")
    enqueue(factory, ", 'older'")
    enqueue(factory, ", 'young'")
    factory.sql("UPDATE pillarbox.idempotency SET ts = now() - interval '8 days' WHERE key LIKE 'old%%'", none=None)
    forget = "SELECT pillarbox.maintain_forget_keys(now(), '7 days', 1)"
    assert [factory.one(forget) for _ in range(3)] == [1, 1, 0]
    assert enqueue(factory, ", 'old'") != first
    assert {row.key for row in factory.sql("SELECT key FROM pillarbox.idempotency")} == {"old", "young"}


def test_a_batch_is_queued_in_order(factory: Factory) -> None:
    submissions = [
        {"sender": "a@sender.example", "recipients": ["r@example.com"], "content": "Subject: zoë\r\n\r\n1\r\n"},
        {"sender": "", "recipients": ["s@example.com", "t@example.com"], "content": "2", "priority": 4, "jobid": "j"},
        {"sender": "a@sender.example", "recipients": ["r@example.com"], "content": "again", "idempotency_key": "k"},
        {"sender": "a@sender.example", "recipients": ["r@example.com"], "content": "again", "idempotency_key": "k"},
    ]
    rows = factory.sql("SELECT id FROM pillarbox.enqueue_batch(%(s)s) AS id", s=json.dumps(submissions))
    ids = [row.id for row in rows]
    assert len(ids) == 4
    assert ids[2] == ids[3]
    bodies = factory.bodies()
    assert [bodies[id_].content for id_ in ids] == ["Subject: zoë\r\n\r\n1\r\n".encode(), b"2", b"again", b"again"]
    assert [bodies[id_].refcount for id_ in ids] == [1, 2, 1, 1]
    assert [(row.priority, row.jobid) for row in factory.queue() if row.messages__id == ids[1]] == [(4, "j")] * 2


def test_one_invalid_submission_refuses_the_batch(factory: Factory) -> None:
    good = {"sender": "a@sender.example", "recipients": ["r@example.com"], "content": "x"}
    for bad in ({**good, "recipients": []}, {**good, "deliver_At": "2030-01-01"}, {**good, "content": "a\nb"}, 7):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            factory.sql("SELECT pillarbox.enqueue_batch(%(s)s)", s=json.dumps([good, bad]))
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        factory.sql("SELECT pillarbox.enqueue_batch(%(s)s)", s=json.dumps(good))
    assert factory.queue() == []
    assert factory.bodies() == {}


def test_an_application_may_leave_notification_to_the_poll(factory: Factory) -> None:
    with psycopg.connect(factory.uri, autocommit=True) as listening, factory.another() as application:
        listening.execute(LISTEN)
        for word in ("off", "no", "FALSE"):
            application.execute(f"SET LOCAL pillarbox.wake = '{word}'".encode())
            application.execute(f"{ENQUEUE})".encode(), {"content": CONTENT})
            application.commit()
        assert list(listening.notifies(timeout=0.2)) == []
        application.execute(f"{ENQUEUE})".encode(), {"content": CONTENT})  # the local setting has ended
        application.commit()
        assert len(list(listening.notifies(timeout=PATIENCE, stop_after=1))) == 1
    assert len(factory.queue()) == 4


def test_workers_are_notified_at_commit(factory: Factory) -> None:
    with psycopg.connect(factory.uri, autocommit=True) as listening, factory.another() as application:
        listening.execute(LISTEN)
        application.execute(f"{ENQUEUE}, deliver_at => now() + interval '1 day')".encode(), {"content": CONTENT})
        assert list(listening.notifies(timeout=0.1)) == []
        application.commit()
        heard = [n.payload for n in listening.notifies(timeout=PATIENCE, stop_after=1)]
    assert heard == [partition_id("example.com", 6)]
