"""test_where_condition — what the form of a worker's WHERE tells, by PostgreSQL's own grammar

Owns: what is refused, and how far the answer for a partition id can be trusted.
See: shared/postgres/where_condition.py.
"""

from __future__ import annotations

import pytest

from shared.postgres.where_condition import read

PARTID = "metadata->>'_partid'"


@pytest.mark.parametrize(
    ("where", "exact", "sound"),
    [
        ("true", True, True),
        (f"{PARTID} IN ('1', '2') OR {PARTID} IS NULL", True, True),
        (f"({PARTID})::int % 2 = 0", True, True),
        (f"coalesce({PARTID}, '1') = '1'", True, True),
        (f"{PARTID} = '1' AND status = 'DELIVER'", True, True),
        # Another column: true and false hold for every row, unknown depends.
        (f"{PARTID} = '1' AND priority > 0", False, True),
        (f"{PARTID} = '1' AND metadata->>'tenant' = 'x'", False, True),
        ("NOT (transportid LIKE 'a%' OR priority BETWEEN 1 AND 2)", False, True),
        # Its being unknown may hide in the answer.
        (f"{PARTID} = '1' AND saslusername IS NULL", False, False),
        ("coalesce(priority, 1) > 0", False, False),
        ("transportid IS DISTINCT FROM 'bulk'", False, False),
        ("CASE WHEN priority > 0 THEN false ELSE true END", False, False),
        ("left(recipientdomain, 1) < 'm'", False, False),
        ("transportid || 'x' = 'ax'", False, False),
        ("""metadata @> '{"_partid": "1"}'""", False, False),
        ("metadata ? 'tenant'", False, False),
    ],
)
def test_how_far_an_answer_can_be_trusted(where: str, *, exact: bool, sound: bool) -> None:
    condition = read(where)
    assert condition.faults == ()
    assert (condition.exact, condition.sound) == (exact, sound)


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        ("id IN (SELECT 1)", "a subquery"),
        ("EXISTS (VALUES (1))", "a subquery"),
        ("count(*) > 1", "an aggregate"),
        ("sum(id) FILTER (WHERE true) > 1", "an aggregate"),
        ("sum(id) OVER () > 1", "a window function"),
        ("id = $1", "a parameter"),
        ("ts < current_timestamp", "the time or the user"),
        ("current_user = 'x'", "the time or the user"),
        ("q.id = 1", "q.id is not allowed"),
        ("queue.* IS NULL", r"queue.\* is not allowed"),
        ("evil.f(id) = 1", "function evil.f"),
        ("id OPERATOR(evil.=) 1", "operator evil.="),
        ("id::evil.t = 1", "type evil.t"),
        ("recipientdomain COLLATE evil.\"C\" = 'x'", "collation evil.C"),
        ("xmlelement(name a) IS NULL", "XmlExpr"),
        ("true LIMIT 1", "unexpected text"),
        ("true GROUP BY id", "unexpected text"),
        ("true UNION SELECT 1", "unexpected text"),
        ("true FOR UPDATE", "unexpected text"),
        ("true) OR (true", "parentheses"),
        ("true; DROP TABLE queue", "not allowed in a condition"),
        ("true -- and no more", "not allowed in a condition"),
        ("id ==== 1 AND", "syntax error"),
        ("", "not one SQL condition"),
    ],
)
def test_what_a_condition_may_not_be(where: str, fault: str) -> None:
    faults = read(where).faults
    assert faults
    assert fault.replace("\\", "") in "; ".join(faults)


def test_what_it_names_is_told() -> None:
    condition = read(f"{PARTID} IN ('1', '2') AND pg_catalog.lower(recipientdomain) = 'X' AND id % 2 = 0")
    assert condition.columns == {"metadata", "recipientdomain", "id"}
    assert condition.functions == {"lower"}
    assert condition.texts == {"1", "2", "X"}


def test_our_own_functions_are_allowed() -> None:
    assert read("pillarbox.partition_id(recipientdomain, 6) = '1'").faults == ()
