"""test_conditions — PostgreSQL evaluates a worker's WHERE for doctor

Owns: every fault of a condition, by name; its answers for partition ids; that a condition in the
    register runs no foreign function.
See: operate/doctor/conditions.py; tests/integration/doctor/test_workers.py for the findings of doctor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from operate.doctor.conditions import prove
from shared.postgres import database
from shared.postgres.coverage import Serves

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from operate.doctor.workers import Proof
    from shared.postgres.coverage import Partid
    from tests.fixtures.database.factory import Factory

PARTID = "metadata->>'_partid'"
A, P, N = Serves.ALL, Serves.PART, Serves.NONE
FAULTS = {
    "id IN (SELECT 1)": "cannot use subquery in a worker's WHERE",
    "EXISTS (VALUES (1))": "cannot use subquery in a worker's WHERE",
    "count(*) > 1": "aggregate functions are not allowed in a worker's WHERE",
    "sum(id) FILTER (WHERE true) > 1": "aggregate functions are not allowed in a worker's WHERE",
    "sum(id) OVER () > 1": "window functions are not allowed in a worker's WHERE",
    "generate_series(1, 2) = 1": "set-returning functions are not allowed in a worker's WHERE",
    "id = $1": "there is no parameter $1",
    "id = DEFAULT": "DEFAULT is not allowed",
    "ts < now()": "not immutable",
    "ts < current_timestamp": "not immutable",
    "ts < '2026-01-01'::date": "not immutable",
    "current_user = 'x'": "not immutable",
    "random() < 0.5": "not immutable",
    "nosuch = 1": 'column "nosuch" does not exist',
    "queue IS NULL": 'column "queue" does not exist',
    "pillarbox_condition IS NULL": 'fails: column "pillarbox_condition" does not exist',
    "tableoid = 1": "a worker's WHERE with system columns is not supported",
    "nosuch(id)": "function nosuch(bigint) does not exist",
    "q.id = 1": '"q." is not allowed',
    "queue.* IS NULL": '"queue." is not allowed',
    "evil.f(id) = 1": '"evil." is not allowed',
    "true LIMIT 1": "syntax error",
    "true GROUP BY id": "syntax error",
    "true UNION SELECT 1": "syntax error",
    "true FOR UPDATE": "syntax error",
    "true, true": "syntax error",
    "true AND": "syntax error",
    "id ==== 1 AND": "syntax error",
    "true) OR (true": "do not balance",
    "true; DROP TABLE queue": '";" is not allowed',
    "true;": '";" is not allowed',
    "true -- and no more": '"--" is not allowed',
    "true /* and no more */": '"/*" is not allowed',
    "": "not one SQL condition",
    "recipientdomain = 'x": "unterminated quoted string",
    'recipientdomain = "x': "unterminated quoted identifier",
    "recipientdomain = $$x": "unterminated dollar-quoted string",
    r"recipientdomain = E'x\'": "unterminated quoted string",
    "id = 'x'": "invalid input syntax for type bigint",
    "priority": "must be type boolean",
    "SELECT true": "syntax error",
    f"({PARTID})::inet = '10.0.0.1'": "fails: invalid input syntax for type inet",
}
# Of mail with id 1, with id 2, and with none.
ANSWERS = {
    "true": (A, A, A),
    "false": (N, N, N),
    "NULL": (N, N, N),
    f"{PARTID} IN ('1', '3') OR {PARTID} IS NULL": (A, N, A),
    f"({PARTID})::int % 2 = 0": (N, A, N),
    f"coalesce({PARTID}, '1') = '1'": (A, N, A),
    f"{PARTID} = '1' AND status = 'DELIVER'": (A, N, N),
    f"{PARTID} LIKE '1%' AND status IN ('DELIVER', 'HOLD')": (A, N, N),
    f"{PARTID} = '1' AND recipientdomain <> 'status'": (P, N, P),
    f"({PARTID})::varchar || 'x' = '1x'": (A, N, N),
    f"({PARTID}) COLLATE \"C\" > '1'": (N, A, N),
    f"CASE {PARTID} WHEN '1' THEN true ELSE false END": (A, N, N),
    "jsonb_extract_path_text(metadata, '_partid') = '1'": (P, P, P),
    f"{PARTID} = pillarbox.partition_id('x', 1)": (A, N, N),
    # Another column, or another key: it depends, unless the id decides.
    f"{PARTID} = '1' AND priority > 0": (P, N, P),
    f"{PARTID} = '1' OR priority > 0": (A, P, P),
    f"{PARTID} = '1' AND metadata->>'tenant' = 'x'": (P, N, P),
    f"{PARTID} = '1' AND saslusername IS NULL": (P, N, P),
    "NOT (transportid LIKE 'a%' OR priority BETWEEN 1 AND 2)": (P, P, P),
    "coalesce(priority, 1) > 0": (P, P, P),
    "transportid IS DISTINCT FROM 'bulk'": (P, P, P),
    "CASE WHEN priority > 0 THEN false ELSE true END": (P, P, P),
    "left(recipientdomain, 1) < 'm'": (P, P, P),
    "transportid || 'x' = 'ax'": (P, P, P),
    "recipientdomain = '(metadata ->> ''_partid''::text) status'": (P, P, P),
    # A slip, or another way to ask.
    "metadata->>'_partit' = '1'": (P, P, P),
    "metadata->'_partid' = '\"1\"'": (P, P, P),
    """metadata @> '{"_partid": "1"}'""": (P, P, P),
    "metadata ? 'tenant'": (P, P, P),
}
TRUE = [
    *ANSWERS,
    f"NOT {PARTID} = '1'",
    f"{PARTID} IS DISTINCT FROM '2'",
    f"{PARTID} = '1' OR NOT (priority > 0 AND {PARTID} = '2')",
    f"{PARTID} LIKE '%2' OR saslusername IS NULL AND {PARTID} = '3'",
    f"NOT ({PARTID} = '1' AND NOT priority BETWEEN -9 AND 0)",
    'metadata @> \'{"_partid": "3"}\' OR priority = 5',
    "metadata->>'tenant' = 'x'",
]
# Ways to make PostgreSQL run a foreign function without a call.
HIDDEN = [
    "'{x}'::evil.words[] IS NULL",
    r"E'\'' = '{x}'::evil.words[]::text OR 'a' = 'b'",
    "E'a'\n'\\'' = '{x}'::evil.words[]::text OR 'a' = 'b'",
    "$$'$$ = '{x}'::evil.words[]::text OR 'a' = 'b'",
    "true) AND ('{x}'::evil.words[] IS NULL",
    "true); SELECT evil.touch('x'); SELECT (true",
]


@pytest.fixture
async def connection(factory: Factory) -> AsyncIterator[database.Connection]:
    """As doctor has it."""
    opened = await database.connect(factory.uri, "test")
    await database.fetch(opened, "doctor_session", seconds=10)
    yield opened
    await opened.close()


async def proof(connection: database.Connection, where: str, partids: Sequence[Partid] = ("1", None)) -> Proof:
    leaves = await database.fetch(connection, "doctor_leaves")
    return await prove(connection, where, partids, leaves)


async def test_each_fault_is_named(connection: database.Connection) -> None:
    found = {where: (await proof(connection, where)).fault for where in FAULTS}
    assert {where: said for where, said in found.items() if FAULTS[where] not in (said or "")} == {}


async def test_conditions_serve_a_partition_always_partly_or_never(connection: database.Connection) -> None:
    asked = ["1", "2", None]
    proofs = {where: await proof(connection, where, asked) for where in ANSWERS}
    assert {where: each.fault for where, each in proofs.items() if each.fault} == {}
    found = {where: tuple(each.answers[partid] for partid in asked) for where, each in proofs.items()}
    assert found == ANSWERS


async def test_the_answer_for_an_id_is_true_of_its_rows(connection: database.Connection, factory: Factory) -> None:
    asked: list[Any] = ["1", "2", "3", None]
    for partid in asked:
        for priority in (-5, 0, 5):
            made = factory.row(partid=partid)
            factory.sql("UPDATE pillarbox.queue SET priority = %(p)s WHERE id = %(id)s", p=priority, id=made)
    wrong = []
    for where in TRUE:
        said = (await proof(connection, where, asked)).answers
        doubled = where.replace("%", "%%")
        counted = (
            f"SELECT count(*) FROM pillarbox.queue WHERE {PARTID} IS NOT DISTINCT FROM %(id)s::text AND ({doubled})"  # noqa: S608 - a list above
        )
        for partid in asked:
            selected = factory.one(counted, id=partid)
            if (said[partid] is A and selected != 3) or (said[partid] is N and selected != 0):
                wrong.append((where, partid, said[partid], selected))
    assert wrong == []


async def test_more_ids_than_select_columns_are_proven(connection: database.Connection) -> None:
    asked: list[Any] = [str(number) for number in range(2000)]
    answers = (await proof(connection, f"({PARTID})::int < 1500", asked)).answers
    assert [partid for partid in asked if answers[partid] is A] == asked[:1500]


async def test_ids_with_any_character_are_proven(connection: database.Connection) -> None:
    odd = 'it\'s 100% \\ "odd"; %(x)s'
    quoted = odd.replace("'", "''")
    assert (await proof(connection, f"{PARTID} = '{quoted}'", [odd, "1"])).answers[odd] is A


async def test_the_proof_leaves_no_table_behind(connection: database.Connection, factory: Factory) -> None:
    await proof(connection, "true")
    await proof(connection, "nosuch = 1")
    assert connection.info.transaction_status.name == "IDLE"
    cursor = await connection.execute("SELECT count(*) FROM pg_class WHERE relname = 'pillarbox_condition'")
    assert await cursor.fetchone() == (0,)


async def test_a_condition_in_the_register_runs_no_foreign_function(
    connection: database.Connection, factory: Factory
) -> None:
    factory.sql("CREATE SCHEMA evil")
    factory.sql("CREATE SEQUENCE evil.touched")
    factory.sql(
        """CREATE FUNCTION evil.touch(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
           $$ BEGIN PERFORM nextval('evil.touched'); RETURN true; END $$"""
    )
    factory.sql("CREATE DOMAIN evil.words AS text CHECK (evil.touch(VALUE))")
    for where in [*HIDDEN, "evil.touch('x')"]:
        assert (await proof(connection, where)).fault
    assert factory.one("SELECT is_called FROM evil.touched") is False
    # Reading it would have been enough.
    factory.sql("CREATE VIEW evil.trap AS SELECT '{x}'::evil.words[]")
    assert factory.one("SELECT is_called FROM evil.touched") is True
