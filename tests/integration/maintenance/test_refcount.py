"""test_refcount — a body's count is the number of its queue rows, after any statement

Owns: proofs about the counting triggers of sql/schema/04_leaf.sql, on the root, the inner tables and the leaves.
See: PostgreSQL manual, "Overview of Trigger Behavior": statement triggers fire only on the table a statement names.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

from shared.mail.message import new_message_id
from tests.fixtures.heard import until

if TYPE_CHECKING:
    from uuid import UUID

    from tests.fixtures.database.factory import Factory

LEAVES = {"queue_def_123": "2", "queue_def_456": "4", "queue_def_def": "elsewhere"}
COLUMNS = "(messages__id, recipientlocalpart, recipientdomain, metadata)"


def assert_counts_are_true(factory: Factory) -> None:
    for body in factory.bodies().values():
        assert body.refcount == body.counted
        assert (body.released is None) == (body.counted > 0)


def insert(factory: Factory, table: str, *rows: tuple[UUID, str]) -> None:
    factory.on(
        table,
        """INSERT INTO {table} (messages__id, recipientlocalpart, recipientdomain, metadata)
           SELECT m, 'r', 'example.com', jsonb_build_object('_partid', p)
             FROM unnest(%(messages)s::uuid[], %(partids)s::text[]) AS u(m, p)""",
        messages=[message for message, _ in rows],
        partids=[partid for _, partid in rows],
    )


@pytest.mark.parametrize("table", ["queue", "queue_def", *LEAVES])
def test_rows_are_counted_in_any_table(factory: Factory, table: str) -> None:
    first, second = factory.message(), factory.message()
    partid = LEAVES.get(table, "1")
    insert(factory, table, (first, partid), (second, partid), (first, partid))
    assert {m: body.refcount for m, body in factory.bodies().items()} == {first: 2, second: 1}
    factory.on(table, "DELETE FROM {table} WHERE id = (SELECT min(id) FROM pillarbox.queue)")
    assert factory.bodies()[first].refcount == 1
    assert_counts_are_true(factory)
    factory.on(table, "DELETE FROM {table}")
    assert [body.refcount for body in factory.bodies().values()] == [0, 0]
    assert_counts_are_true(factory)


def test_rows_inserted_on_hold_are_counted(factory: Factory) -> None:
    message = factory.message()
    factory.sql(
        """INSERT INTO pillarbox.queue_hold (status, messages__id, recipientlocalpart, recipientdomain)
           VALUES ('HOLD', %(m)s, 'r', 'example.com')""",
        m=message,
    )
    assert factory.bodies()[message].refcount == 1
    factory.sql("DELETE FROM pillarbox.queue_hold")
    assert factory.bodies()[message].refcount == 0


@pytest.mark.parametrize("table", ["queue", "queue_def_123"])
def test_rows_inserted_by_copy_are_counted(factory: Factory, table: str) -> None:
    messages = [factory.message() for _ in range(3)]
    with (
        factory.another() as session,
        session.cursor() as cursor,
    ):
        with cursor.copy(f"COPY pillarbox.{table} {COLUMNS} FROM STDIN".encode()) as copy:
            for number in range(300):
                copy.write_row((messages[number % 3], f"r{number}", "example.com", '{"_partid": "3"}'))
        session.commit()
    assert {body.refcount for body in factory.bodies().values()} == {100}
    assert_counts_are_true(factory)


def test_rows_of_many_leaves_are_deleted_in_one_statement(factory: Factory) -> None:
    message = factory.message()
    for partid in ("1", "4", "9"):
        factory.rows(5, message=message, partid=partid)
    factory.rows(5, message=message, status="HOLD")
    factory.sql("DELETE FROM pillarbox.queue WHERE recipientlocalpart IN ('r1', 'r2')")
    assert factory.bodies()[message].refcount == 12
    assert_counts_are_true(factory)


def test_hold_and_release_move_the_row_and_keep_the_count(factory: Factory) -> None:
    """Row triggers would see the move's DELETE first, count down to none, and lose the body."""
    message = factory.message()
    id_ = factory.row(message=message, partid="4")
    for status, leaf in (("HOLD", "queue_hold"), ("DELIVER", "queue_def_456"), ("HOLD", "queue_hold")):
        factory.move([id_], status)
        [row] = factory.queue(id_)
        assert (row.leaf, row.status) == (leaf, status)
        body = factory.bodies()[message]
        assert (body.refcount, body.released) == (1, None)


def test_moves_never_write_the_count(factory: Factory) -> None:
    message = factory.message()
    ids = factory.rows(10, message=message)
    before = factory.one("SELECT xmin::text FROM pillarbox.refcounts")
    factory.move(ids, "HOLD")
    factory.move(ids, "DELIVER")
    factory.sql('UPDATE pillarbox.queue SET metadata = \'{"_partid": "5"}\'')
    assert {row.leaf for row in factory.queue()} == {"queue_def_456"}
    assert factory.one("SELECT xmin::text FROM pillarbox.refcounts") == before
    assert_counts_are_true(factory)


@pytest.mark.parametrize("table", ["queue", "queue_hold", "queue_def", *LEAVES])
def test_truncate_is_refused(factory: Factory, table: str) -> None:
    factory.row(partid=LEAVES.get(table, "1"))
    with pytest.raises(psycopg.errors.RestrictViolation, match="TRUNCATE"):
        factory.on(table, "TRUNCATE {table}")
    assert len(factory.queue()) == 1


@pytest.mark.parametrize("table", ["queue", *LEAVES])
def test_a_row_without_a_body_is_refused(factory: Factory, table: str) -> None:
    there, nowhere = factory.message(), new_message_id()
    partid = LEAVES.get(table, "1")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        insert(factory, table, (there, partid), (nowhere, partid))
    assert factory.queue() == []
    assert factory.bodies()[there].refcount == 0


@pytest.mark.parametrize("column", ["id", "messages__id"])
@pytest.mark.parametrize("table", ["queue", "queue_def_123"])
def test_the_id_and_message_of_a_row_cannot_change(factory: Factory, table: str, column: str) -> None:
    factory.row()
    other = {"id": 999_999, "messages__id": factory.message()}[column]
    with pytest.raises(psycopg.errors.RestrictViolation):
        factory.on(table, "UPDATE {table} SET column = %(other)s".replace("column", column), other=other)
    assert all(body.refcount == body.counted for body in factory.bodies().values())


def test_a_rolled_back_transaction_is_not_counted(factory: Factory) -> None:
    message = factory.message()
    factory.rows(2, message=message)
    with factory.another() as session:
        session.execute("DELETE FROM pillarbox.queue")
        session.rollback()
    assert_counts_are_true(factory)
    assert factory.bodies()[message].refcount == 2


async def test_counts_are_locked_in_one_order_so_that_two_sessions_cannot_deadlock(factory: Factory) -> None:
    """Two workers finish recipients of the same 40 messages in opposite orders, held up at the first count."""
    messages = sorted(new_message_id() for _ in range(40))
    for message in reversed(messages):
        factory.rows(2, message=factory.message(id=message))
    errors: list[BaseException] = []

    def finish(name: str, actionid: int, order: str) -> None:
        with factory.another(name) as session:
            try:
                session.execute(
                    """WITH asked AS MATERIALIZED (SELECT id FROM pillarbox.queue WHERE actionid = %s
                                                     ORDER BY messages__id {order})
                        DELETE FROM pillarbox.queue q USING asked WHERE q.id = asked.id""".replace(
                        "{order}", order
                    ).encode(),
                    (actionid,),
                )
                session.commit()
            except psycopg.Error as error:
                errors.append(error)

    finishing = [
        threading.Thread(target=finish, args=("forth", 1, "ASC")),
        threading.Thread(target=finish, args=("back", 2, "DESC")),
    ]
    with factory.another() as holding:
        holding.execute("SELECT FROM pillarbox.refcounts WHERE messages__id = %s FOR UPDATE", (messages[0],))
        for each in finishing:
            each.start()
        await until(lambda: factory.waiting("forth") and factory.waiting("back"), "both to wait for the first count")
        # No session holds a later count while it waits for the first, so a cycle is impossible.
        free = factory.sql(
            "SELECT 1 FROM pillarbox.refcounts WHERE messages__id <> %(first)s FOR UPDATE NOWAIT", first=messages[0]
        )
        assert len(free) == 39
    for each in finishing:
        each.join(20)
        assert not each.is_alive()
    assert errors == []
    assert [body.refcount for body in factory.bodies().values()] == [0] * 40
    assert_counts_are_true(factory)
