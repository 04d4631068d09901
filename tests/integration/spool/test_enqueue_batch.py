"""test_enqueue_batch — a batch is queued as its elements would be one by one, and an error names the element

Owns: proofs that enqueue_batch of sql/schema/07_enqueue.sql has the rules of enqueue, also for keys and principals,
    and that all of a batch is queued, or nothing.
See: docs/how-to/send/enqueue-from-sql.md; tests/integration/spool/test_enqueue.py; scripts/bench/enqueue.py for the
    rate.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from tests.fixtures.database.listening import LISTEN
from tests.fixtures.database.principals import acting, agent, principal
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

BATCH: Final = "SELECT id FROM pillarbox.enqueue_batch(%(s)s) AS id"
GOOD: Final[dict[str, Any]] = {"sender": "a@sender.example", "recipients": ["r@example.com"], "content": "x"}
#: Everything that an element may have, in several spellings.
VARIED: Final[list[dict[str, Any]]] = [
    {**GOOD, "content": "Message-ID: <1@x.example>\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n\r\nbody\r\n"},
    {**GOOD, "sender": "", "recipients": ["s@Example.COM", '"a b"@[192.0.2.1]', "t@example.org"]},
    {**GOOD, "sender": "B@Sender.Example", "recipients": ["zoë@example.com"], "priority": 5, "jobid": "spring"},
    {**GOOD, "metadata": {"order": 7, "shop": {"name": "ü"}}, "transportid": "relay", "smtputf8": True},
    {**GOOD, "deliver_at": "2030-01-01T12:00:00Z", "priority": -3},
    {**GOOD, "priority": None, "metadata": None, "transportid": None, "jobid": None, "deliver_at": None},
    {**GOOD, "content": "Subject: ü \u2028 x\r\n\r\n" + "line\r\n" * 3000},
]
#: An element that is refused, by the same words as a call of enqueue.
REFUSED: Final[list[dict[str, Any]]] = [
    {**GOOD, "sender": "nobody"},
    {**GOOD, "sender": None},
    {**GOOD, "recipients": []},
    {**GOOD, "recipients": None},
    {**GOOD, "recipients": ["r@example.com", "größe@größe.example"]},
    {**GOOD, "recipients": ["r@example.com", "a b@example.com"]},
    {**GOOD, "content": "a\nb"},
    {**GOOD, "content": None},
    {**GOOD, "priority": 10},
    {**GOOD, "metadata": []},
    {**GOOD, "metadata": {"_partid": "1"}},
    {**GOOD, "metadata": {"a": "x" * 65536}},
    {**GOOD, "jobid": "j" * 256},
    {**GOOD, "transportid": "a\tb"},
    {**GOOD, "deliver_at": "infinity"},
    {**GOOD, "idempotency_key": ""},
    {**GOOD, "idempotency_key": "k" * 256},
]


def batch(factory: Factory, submissions: Sequence[Any]) -> list[UUID]:
    """Queue a batch; the ids."""
    return [row.id for row in factory.sql(BATCH, s=json.dumps(submissions))]


def single(factory: Factory, submission: dict[str, Any]) -> UUID:
    """Call enqueue with the same parameters."""
    values = {**submission, "content": None if submission["content"] is None else submission["content"].encode()}
    values["metadata"] = json.dumps(submission["metadata"]) if submission.get("metadata") is not None else None
    types = {"content": "bytea", "metadata": "jsonb", "recipients": "text[]", "deliver_at": "timestamptz"}
    given = ", ".join(f"{name} => %({name})s::{types.get(name, 'text')}" for name in values)
    for name, type_ in (("priority", "integer"), ("smtputf8", "boolean")):
        given = given.replace(f"%({name})s::text", f"%({name})s::{type_}")
    found: UUID = factory.one(f"SELECT pillarbox.enqueue({given})", **values)
    return found


def test_a_batch_writes_the_same_rows_as_single_calls(factory: Factory) -> None:
    ones = [single(factory, each) for each in VARIED]
    rows = """SELECT q.actionid, q.status, q.ts = q.next_retry AS same, q.ts > now() AS later, q.saslusername,
               q.serverid, q.senderlocalpart, q.senderdomain, q.recipientlocalpart, q.recipientdomain, q.size, q.jobid,
               q.metadata, q.transportid, q.priority, m.content, m.smtputf8, m.msgid, m.subject
          FROM unnest(%(ids)s::uuid[]) WITH ORDINALITY AS i(id, n) JOIN pillarbox.messages m USING (id)
          JOIN pillarbox.queue q ON q.messages__id = m.id
         ORDER BY i.n, q.actionid"""
    expected = [tuple(row) for row in factory.sql(rows, ids=ones)]
    assert [tuple(row) for row in factory.sql(rows, ids=batch(factory, VARIED))] == expected
    assert len(expected) == len(VARIED) + 2


@pytest.mark.parametrize("bad", REFUSED, ids=lambda bad: next(n for n in bad if n not in GOOD or bad[n] != GOOD[n]))
def test_an_error_names_the_element_and_is_the_one_of_a_single_call(factory: Factory, bad: dict[str, Any]) -> None:
    with pytest.raises(psycopg.Error) as alone:
        single(factory, bad)
    with pytest.raises(psycopg.Error) as among:
        batch(factory, [GOOD, GOOD, bad, {**GOOD, "priority": 99}])
    assert among.value.diag.message_primary == f"element 3: {alone.value.diag.message_primary}"
    for detail in ("sqlstate", "message_hint"):
        assert getattr(among.value.diag, detail) == getattr(alone.value.diag, detail)
    assert (factory.queue(), factory.bodies()) == ([], {})


@pytest.mark.parametrize(
    ("bad", "answer"),
    [
        ({**GOOD, "deliver_At": "2030-01-01"}, "element 2: enqueue has no parameter 'deliver_At'"),
        (7, "element 2: enqueue_batch needs a JSON array of objects, not number"),
        (None, "element 2: enqueue_batch needs a JSON array of objects, not null"),
        ({**GOOD, "priority": "high"}, 'element 2: invalid input syntax for type integer: "high"'),
        ({**GOOD, "deliver_at": "soon"}, 'element 2: invalid input syntax for type timestamp with time zone: "soon"'),
        ({**GOOD, "recipients": "r@example.com"}, 'element 2: malformed array literal: "r@example.com"'),
    ],
)
def test_what_is_not_a_submission_is_refused_with_its_number(factory: Factory, bad: Any, answer: str) -> None:
    with pytest.raises(psycopg.DataError) as refused:
        batch(factory, [GOOD, bad, GOOD])
    assert refused.value.diag.message_primary == answer
    assert factory.bodies() == {}


def test_an_empty_batch_queues_nothing(factory: Factory) -> None:
    assert batch(factory, []) == []


def test_keys_of_a_batch_replay_and_queue_only_what_is_new(factory: Factory) -> None:
    keyed = [{**GOOD, "content": f"{n}", "idempotency_key": f"order-{n}"} for n in range(6)]
    first = batch(factory, keyed[:4])
    assert single(factory, keyed[1]) == first[1]
    one = single(factory, keyed[5])
    again = batch(factory, [keyed[5], keyed[3], GOOD, keyed[4], keyed[0], keyed[4], GOOD])
    assert (again[0], again[1], again[4]) == (one, first[3], first[0])
    assert again[3] == again[5]
    assert len({*first, *again}) == 8
    assert {row.messages__id for row in factory.queue()} == {*first, *again}
    assert [body.refcount for body in factory.bodies().values()] == [1] * 8


def test_a_key_of_another_message_refuses_the_batch_with_its_number(factory: Factory) -> None:
    first = single(factory, {**GOOD, "idempotency_key": "k"})
    other = {**GOOD, "content": "y", "idempotency_key": "k"}
    for asked in ([GOOD, other], [GOOD, {**other, "idempotency_key": "new"}, {**GOOD, "idempotency_key": "new"}]):
        with pytest.raises(psycopg.errors.UniqueViolation, match=r"^element \d: idempotency key ") as refused:
            batch(factory, asked)
        assert (refused.value.diag.message_primary or "").startswith(f"element {len(asked)}: ")
    assert [row.messages__id for row in factory.queue()] == [first]


def test_two_batches_with_the_same_keys_in_other_orders_queue_each_once(factory: Factory) -> None:
    keyed = [{**GOOD, "content": f"{n}", "idempotency_key": f"{n}"} for n in range(50)]
    with factory.another() as one, psycopg.connect(factory.uri, autocommit=True) as other:
        [*first] = one.execute(BATCH.encode(), {"s": json.dumps(keyed)})
        with other.pipeline():
            waiting = other.execute(BATCH.encode(), {"s": json.dumps(keyed[::-1])})
            one.commit()
        assert sorted(waiting) == sorted(first)
    assert len(factory.queue()) == 50


def test_a_principals_batch_has_its_senders_hold_and_keys(factory: Factory, logins: Logins) -> None:
    principal(factory, "shop", "sender", senders=["sender.example"], quarantineid="review", partitionid="7")
    good = {**GOOD, "content": "From: a@sender.example\r\n"}
    keyed = {**good, "idempotency_key": "k"}
    with psycopg.connect(agent(factory, logins), autocommit=True) as session:
        with acting(session, "shop"):
            first = session.execute(BATCH.encode(), {"s": json.dumps([good, keyed])}).fetchall()
            assert session.execute(BATCH.encode(), {"s": json.dumps([keyed])}).fetchall() == first[1:]
        refused = pytest.raises(
            psycopg.errors.InsufficientPrivilege, match='element 2: "shop" may not send as "a@other'
        )
        with refused, acting(session, "shop"):
            session.execute(BATCH.encode(), {"s": json.dumps([good, {**good, "sender": "a@other.example"}])})
    rows = factory.queue()
    assert {(row.status, row.partid, row.saslusername, row.metadata["_quarantineid"]) for row in rows} == {
        ("HOLD", "7", "shop", "review")
    }
    assert len(rows) == 2


def test_a_large_batch_is_queued_whole_and_notifies_each_partition_once(factory: Factory) -> None:
    asked = [{**GOOD, "recipients": [f"r{n}@d{n % 40}.example"], "content": f"{n}"} for n in range(2000)]
    with psycopg.connect(factory.uri, autocommit=True) as listening:
        listening.execute(LISTEN)
        ids = batch(factory, asked)
        partids = {row.partid for row in factory.queue()}
        heard = [n.payload for n in listening.notifies(timeout=PATIENCE, stop_after=len(partids))]
        assert list(listening.notifies(timeout=0)) == []
    assert sorted(heard) == sorted(map(str, partids))
    bodies = factory.bodies()
    assert [bodies[id_].content for id_ in ids] == [str(n).encode() for n in range(2000)]
    assert {id_.version for id_ in ids} == {7}
