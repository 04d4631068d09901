"""test_states_detours — an illegal transition is refused in every statement, and legal ones are counted correctly

Owns: proofs about the ways round the trigger on UPDATE: functions that delete and insert, COPY, the view, ON CONFLICT
    and MERGE, aimed at the root and at leaves. test_states.py has UPDATE itself.
See: sql/schema/04_leaf.sql: queue_arrived, queue_left and queue_count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from uuid import UUID

    from tests.fixtures.database.factory import Factory

ENDED = ["DELETE", "BOUNCE"]
COLUMNS = "id, messages__id, recipientlocalpart, recipientdomain, metadata"
#: Statements of a function that has read the row into `old` and changed it there.
_TAKE, _PUT = (
    "DELETE FROM pillarbox.{table} WHERE id = moved AND status = was;",
    "INSERT INTO pillarbox.queue SELECT (old).*;",
)
_APART = "BEGIN {do} EXCEPTION WHEN division_by_zero THEN NULL; END;"  # a subtransaction
DETOURS = {
    "take-put": _TAKE + _PUT,
    "put-take": _PUT + _TAKE,
    "apart": _APART.replace("{do}", _TAKE) + _APART.replace("{do}", _PUT),
}


def assert_untouched(factory: Factory, id_: int, status: str) -> None:
    [row] = factory.queue()
    assert (row.id, row.status) == (id_, status)
    [body] = factory.bodies().values()
    assert (body.refcount, body.released) == (1, None)


@pytest.mark.parametrize("table", ["queue", "queue_def_123"])
@pytest.mark.parametrize("following", ["DELIVER", "HOLD"])
@pytest.mark.parametrize("previous", ENDED)
@pytest.mark.parametrize("detour", DETOURS)
def test_a_function_that_deletes_and_inserts_is_refused(
    factory: Factory, detour: str, previous: str, following: str, table: str
) -> None:
    id_ = factory.row(status=previous, partid="2")
    # Into another leaf, where no unique constraint meets the old row.
    factory.sql(
        """CREATE FUNCTION pg_temp.detour(moved bigint) RETURNS void LANGUAGE plpgsql AS $$
           DECLARE old pillarbox.queue; was pillarbox.queue_status;
           BEGIN
               SELECT * INTO old FROM pillarbox.queue WHERE id = moved;
               was := old.status; old.status := '{status}'; old.metadata := '{"_partid": "4"}';
               {body}
           END $$""".replace("{body}", DETOURS[detour])
        .replace("{status}", following)
        .replace("{table}", table)
    )
    with pytest.raises(psycopg.errors.CheckViolation, match="was to be deleted or bounced"):
        factory.sql("SELECT pg_temp.detour(%(id)s)", id=id_)
    assert_untouched(factory, id_, previous)


@pytest.mark.parametrize("previous", ENDED)
def test_a_statement_that_deletes_and_inserts_is_refused(factory: Factory, previous: str) -> None:
    id_ = factory.row(status=previous, partid="2")
    moved = f"SELECT {COLUMNS}, 'HOLD' FROM"
    for text in (
        f"""WITH gone AS (DELETE FROM pillarbox.queue RETURNING *)
            INSERT INTO pillarbox.queue ({COLUMNS}, status) {moved} gone""",  # noqa: S608 - as above
        f"""WITH back AS (INSERT INTO pillarbox.queue ({COLUMNS}, status) {moved} pillarbox.queue RETURNING id)
            DELETE FROM pillarbox.queue q USING back WHERE q.id = back.id AND q.status <> 'HOLD'""",  # noqa: S608 - as above
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match="was to be deleted or bounced"):
            factory.sql(text)
        assert_untouched(factory, id_, previous)


@pytest.mark.parametrize("previous", ENDED)
@pytest.mark.parametrize("state", ["DELIVER", "HOLD"])
def test_the_view_refuses_what_the_table_refuses(factory: Factory, state: str, previous: str) -> None:
    id_ = factory.row(status=previous)
    with pytest.raises(psycopg.errors.CheckViolation, match=f"cannot go from {previous} to {state}"):
        factory.sql("UPDATE pillarbox.mail SET state = %(state)s", state=state)
    assert_untouched(factory, id_, previous)


@pytest.mark.parametrize("table", ["queue", "queue_def", "queue_def_123"])
@pytest.mark.parametrize("status", ENDED)
def test_copy_cannot_insert_a_later_status(factory: Factory, table: str, status: str) -> None:
    message = factory.message()
    with (
        factory.another() as session,
        pytest.raises(psycopg.errors.CheckViolation, match="begins as DELIVER or HOLD"),
        session.cursor() as cursor,
        cursor.copy(f"COPY pillarbox.{table} ({COLUMNS}, status) FROM STDIN".encode()) as copy,
    ):
        copy.write_row((1, message, "r", "example.com", '{"_partid": "1"}', status))
    assert factory.queue() == []
    assert factory.bodies()[message].refcount == 0


@pytest.mark.parametrize("aim", ["queue", "queue_hold"])
@pytest.mark.parametrize("previous", ENDED)
def test_copy_cannot_restore_an_ended_recipient(factory: Factory, previous: str, aim: str) -> None:
    id_ = factory.row(status=previous)
    [row] = factory.queue()
    with factory.another() as session:
        session.execute("DELETE FROM pillarbox.queue")
        with (
            pytest.raises(psycopg.errors.CheckViolation, match="cannot come back"),
            session.cursor() as cursor,
            cursor.copy(f"COPY pillarbox.{aim} ({COLUMNS}, status) FROM STDIN".encode()) as copy,
        ):
            copy.write_row((id_, row.messages__id, "r", "example.com", '{"_partid": "1"}', "HOLD"))
    assert_untouched(factory, id_, previous)


@pytest.mark.parametrize("previous", ENDED)
def test_on_conflict_and_merge_refuse_illegal_transitions(factory: Factory, previous: str) -> None:
    id_ = factory.row(status=previous)
    for text in (
        f"""INSERT INTO pillarbox.queue_def_123 ({COLUMNS}) SELECT {COLUMNS} FROM pillarbox.queue
            ON CONFLICT (id) DO UPDATE SET status = 'DELIVER'""",  # noqa: S608 - our own names
        "MERGE INTO pillarbox.queue q USING (SELECT) AS v ON true WHEN MATCHED THEN UPDATE SET status = 'DELIVER'",
        "MERGE INTO pillarbox.queue_def_123 q USING (SELECT) v ON true WHEN MATCHED THEN UPDATE SET status = 'DELIVER'",
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match=f"cannot go from {previous} to DELIVER"):
            factory.sql(text)
        assert_untouched(factory, id_, previous)


@pytest.mark.parametrize("move", ["status = 'HOLD'", """metadata = '{"_partid": "4"}'"""], ids=["hold", "partition"])
@pytest.mark.parametrize(
    "besides",
    [
        "WHEN MATCHED AND NOT v.moves THEN DELETE",
        """WHEN NOT MATCHED THEN INSERT (messages__id, recipientlocalpart, recipientdomain)
                                 VALUES (v.message, 'n', 'example.com')""",
    ],
    ids=["delete", "insert"],
)
def test_a_merge_that_moves_and_changes_rows_is_counted_correctly(factory: Factory, besides: str, move: str) -> None:
    """Its transition tables hold the moved rows as well."""
    message = factory.message()
    factory.rows(6, message=message)
    factory.sql(
        """MERGE INTO pillarbox.queue q
           USING (SELECT n, n <= 3 AS moves, %(message)s::uuid AS message FROM generate_series(1, 8) AS n) AS v
              ON q.actionid = v.n WHEN MATCHED AND v.moves THEN UPDATE SET {move} {besides}""".replace(
            "{move}", move
        ).replace("{besides}", besides),
        message=message,
    )
    body = factory.bodies()[message]
    assert body.refcount == body.counted == (3 if "DELETE" in besides else 8)
    factory.sql("DELETE FROM pillarbox.queue")
    body = factory.bodies()[message]
    assert (body.refcount, body.released is None) == (0, False)


@pytest.mark.parametrize(
    "change", ["token = 5", "lease_until = now()", "worker = 'w'", "retry_count = -1", "lost_count = -1"]
)
def test_an_incomplete_lease_is_refused(factory: Factory, change: str) -> None:
    factory.row()
    with pytest.raises(psycopg.errors.CheckViolation, match="queue_lease"):
        factory.sql(f"UPDATE pillarbox.queue SET {change}")  # noqa: S608 - our own text


def test_counting_uses_the_index_of_bodies_in_a_grown_table(factory: Factory) -> None:
    """The triggers' plans are kept by the session: none may read all bodies."""

    def queue(*messages: UUID) -> None:
        factory.sql(
            """INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain)
               SELECT m, 'r', 'example.com' FROM unnest(%(messages)s::uuid[]) AS m""",
            messages=list(messages),
        )

    factory.sql("ALTER TABLE pillarbox.messages SET (autovacuum_enabled = off)")
    first = [factory.message() for _ in range(200)]
    for _ in range(10):
        queue(*first)
    read = (
        "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables WHERE relname = 'messages'"
    )
    factory.sql(
        """INSERT INTO pillarbox.messages (id, size, content)
           SELECT gen_random_uuid(), 0, '' FROM generate_series(1, 20000)"""
    )
    last = factory.message()
    factory.sql("BEGIN")
    before = factory.one(read)
    queue(last)
    factory.sql("DELETE FROM pillarbox.queue WHERE messages__id = %(last)s", last=last)
    looked_at = factory.one(read) - before
    factory.sql("COMMIT")
    assert looked_at < 20
