"""test_schema — the layout follows the queue manual, and every leaf has the same guards

Owns: proofs about the objects of sql/schema; test_migrate.py has its application.
See: Halon's queue manual for queue_hold, queue_def and queue_def_123.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from shared.postgres.migrate import migrate
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

GUARDS = {"queue_arrived", "queue_left", "queue_truncated"}
ROW_GUARDS = {
    *("queue_status", "queue_identity", "queue_partid"),
    *("queue_reviewed", "queue_decided", "queue_released", "queue_held", "milestone_released"),
}
HOLD_GUARDS = {"queue_hold_claimed", "queue_hold_deleted", "milestone_held"}  # other leaves need none
STORAGE = {
    "fillfactor": "45",
    "autovacuum_vacuum_scale_factor": "0",
    "autovacuum_vacuum_threshold": "2000",
    "autovacuum_vacuum_insert_scale_factor": "0.2",
    "autovacuum_analyze_scale_factor": "0",
    "autovacuum_analyze_threshold": "20000",
    "autovacuum_vacuum_cost_delay": "0",
}


@pytest.fixture
def grown(factory: Factory) -> Factory:
    """A database in which a leaf was made later than the others."""
    migrate(factory.uri, {**LEAVES, "late": ["tenant-7", "it's"]})
    return factory


def tree(factory: Factory) -> dict[str, Any]:
    """Every table of the queue by name: its parent, its bound, whether it is a leaf."""
    found = factory.sql(
        """SELECT t.isleaf, t.level, c.relname AS name, p.relname AS parent, c.reloptions AS options,
                  pg_get_expr(c.relpartbound, c.oid) AS bound, pg_get_partkeydef(c.oid) AS key
             FROM pg_partition_tree('pillarbox.queue') t
             JOIN pg_class c ON c.oid = t.relid LEFT JOIN pg_class p ON p.oid = t.parentrelid"""
    )
    return {row.name: row for row in found}


def triggers(factory: Factory, table: str) -> set[str]:
    found = factory.sql(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = to_regclass(%(t)s) AND tgenabled = 'O'", t=f"pillarbox.{table}"
    )
    names = [row.tgname for row in found]
    assert len(names) == len(set(names)), "a trigger that is there twice counts twice"
    return set(names)


def test_the_layout_is_that_of_the_manual(factory: Factory) -> None:
    tables = tree(factory)
    assert {name: (row.parent, row.bound) for name, row in tables.items()} == {
        "queue": (None, None),
        "queue_hold": ("queue", "FOR VALUES IN ('HOLD')"),
        "queue_def": ("queue", "DEFAULT"),
        "queue_def_123": ("queue_def", "FOR VALUES IN ('1', '2', '3')"),
        "queue_def_456": ("queue_def", "FOR VALUES IN ('4', '5', '6')"),
        "queue_def_def": ("queue_def", "DEFAULT"),
    }
    assert tables["queue"].key == "LIST (status)"
    assert tables["queue_def"].key == "LIST (((metadata ->> '_partid'::text)))"


def test_every_table_has_the_same_triggers(grown: Factory) -> None:
    tables = tree(grown)
    assert "queue_def_late" in tables
    for name in tables:
        assert triggers(grown, name) == GUARDS | ROW_GUARDS | (HOLD_GUARDS if name == "queue_hold" else set()), name


def test_every_leaf_has_a_unique_id_and_the_storage_of_a_hot_table(grown: Factory) -> None:
    for name, row in tree(grown).items():
        if not row.isleaf:
            continue
        assert dict(option.split("=") for option in row.options) == STORAGE, name
        unique = grown.sql(
            """SELECT pg_get_constraintdef(oid) AS text FROM pg_constraint
                WHERE contype = 'u' AND conrelid = to_regclass(%(t)s)""",
            t=f"pillarbox.{name}",
        )
        assert [constraint.text for constraint in unique] == ["UNIQUE (id)"], name


def test_every_leaf_has_the_indexes_of_the_root(grown: Factory) -> None:
    wanted = {
        *("queue_due_urgent", "queue_due_urgent_fresh", "queue_due_urgent_retried"),
        *("queue_due", "queue_due_retried", "queue_due_bulk"),
        *("queue_suspect", "queue_messages__id", "queue_finish"),
    }
    found = grown.sql(
        """SELECT root.relname AS index, count(*) FILTER (WHERE t.isleaf) AS leaves
             FROM pg_class root, LATERAL pg_partition_tree(root.oid) t
            WHERE root.relkind = 'I' AND root.relname LIKE 'queue_%' AND NOT root.relispartition
            GROUP BY 1"""
    )
    leaves = sum(row.isleaf for row in tree(grown).values())
    assert {row.index: row.leaves for row in found} == dict.fromkeys(wanted, leaves)


@pytest.mark.parametrize("column", ["token", "worker", "lease_until", "retry_count", "last_retry"])
def test_columns_written_by_a_claim_are_not_indexed(factory: Factory, column: str) -> None:
    """Else no claim would be a HOT update."""
    found = factory.sql(
        """SELECT DISTINCT i.indexrelid::regclass::text AS index
             FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attname = %(column)s
             JOIN pg_partition_tree('pillarbox.queue') t ON t.relid = i.indrelid
            WHERE a.attnum = ANY(i.indkey) OR pg_get_expr(i.indpred, i.indrelid) LIKE '%%' || %(column)s || '%%'""",
        column=column,
    )
    assert found == []


def test_claims_are_hot_updates(factory: Factory) -> None:
    ids = factory.rows(500, partid="1")
    factory.lease(ids, ends=-(factory.one("SELECT interval '1 second'")))
    factory.lease(ids[:100], ends=factory.one("SELECT interval '1 hour'"))
    factory.sql("SELECT pg_stat_force_next_flush()")
    [row] = factory.sql(
        "SELECT n_tup_upd AS updated, n_tup_hot_upd AS hot FROM pg_stat_user_tables WHERE relname = 'queue_def_123'"
    )
    assert row.updated == 600
    # Pages are filled to 70 %, so the first update of nearly every row finds room beside it.
    assert row.hot > 200


def test_ids_are_unique_across_leaves(grown: Factory) -> None:
    ids = [grown.row(partid=partid) for partid in ("1", "4", "tenant-7", "it's", "other", None)]
    ids.append(grown.row(status="HOLD"))
    assert len(set(ids)) == 7
    assert [row.leaf for row in grown.queue(*ids)] == [
        "queue_def_123",
        "queue_def_456",
        "queue_def_late",
        "queue_def_late",
        "queue_def_def",
        "queue_def_def",
        "queue_hold",
    ]


@pytest.mark.parametrize("function", ["queue_arrived", "queue_left", "queue_moved"])
def test_the_search_path_of_a_caller_does_not_affect_triggers(factory: Factory, function: str) -> None:
    factory.sql("CREATE TEMP TABLE messages (id uuid)")
    factory.sql("CREATE TEMP TABLE refcounts (messages__id uuid, refcount integer)")
    factory.sql("CREATE TEMP TABLE released (messages__id uuid, ts timestamptz)")
    factory.sql("CREATE TEMP TABLE status_transitions (previous text, next text)")
    factory.sql("SET search_path = pg_temp, public")
    message = factory.message()
    id_ = factory.row(message=message)
    factory.move([id_], "HOLD")
    assert factory.bodies()[message].refcount == 1
    factory.sql("DELETE FROM pillarbox.queue")
    assert factory.bodies()[message].refcount == 0
    [row] = factory.sql("SELECT proconfig FROM pg_proc WHERE proname = %(f)s", f=function)
    assert "search_path=pillarbox, pg_temp" in row.proconfig


@pytest.mark.parametrize("table", ["attempts", "archive"])
def test_history_has_a_day_for_yesterday_today_and_a_week(factory: Factory, table: str) -> None:
    days = factory.sql(
        """SELECT c.relname AS name FROM pg_partition_tree(%(t)s) t JOIN pg_class c ON c.oid = t.relid
            WHERE t.isleaf ORDER BY 1""",
        t=f"pillarbox.{table}",
    )
    wanted = factory.sql(
        """SELECT to_char((now() AT TIME ZONE 'UTC')::date + n, 'YYYYMMDD') AS day
             FROM generate_series(-1, 7) AS n ORDER BY 1"""
    )
    # Made when the template was: near midnight that may have been the day before.
    assert len(days) == 9
    assert {f"{table}_{row.day}" for row in wanted[:8]} <= {row.name for row in days}


def test_history_refuses_unknown_outcomes_and_results(factory: Factory) -> None:
    factory.row()
    for table, column in (("attempts", "outcome"), ("attempts", "scope"), ("archive", "result")):
        [row] = factory.sql(
            """SELECT pg_get_constraintdef(oid) AS text FROM pg_constraint
                WHERE contype = 'c' AND conrelid = to_regclass(%(t)s) AND conname LIKE '%%' || %(c)s || '%%'""",
            t=f"pillarbox.{table}",
            c=column,
        )
        assert column in row.text
    with pytest.raises(psycopg.errors.CheckViolation, match="outcome"):
        factory.sql(
            """INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, transportid,
                                               recipientdomain, size, outcome, scope, duration)
               VALUES (now(), 1, gen_random_uuid(), 1, 1, 'w', 'default', 'example.com', 1, 'lost', 'us', '1 s')"""
        )
