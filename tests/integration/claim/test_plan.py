"""test_plan — PostgreSQL claims by the index and only in the worker's leaves

Owns: proofs about the plans of claim.sql and claim_next_due.sql, as first planned and as kept for prepared statements.
See: PostgreSQL manual, "Partition Pruning" and plan_cache_mode.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from queued.claiming.claim import NO_FLOORS, NOTHING_LOST
from shared.postgres.queries import where_query
from tests.fixtures.database.factory import Factory
from tests.fixtures.database.plans import nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.servers.postgres import ServerUnderTest

# In each leaf. Far below this PostgreSQL may rightly prefer to read a leaf whole the first few times it plans.
ROWS = 50_000
TYPES = {
    "now": "timestamptz",
    **dict.fromkeys(NO_FLOORS, "timestamptz"),
    "batch": "integer",
    "ordinary": "integer",
    "retried": "integer",
    "worker": "text",
    "lease": "interval",
    "suspects": "boolean",
    "token": "bigint",
}
VALUES = {
    "now": "NULL",
    **dict.fromkeys(NO_FLOORS, "now() - interval '10 seconds'"),
    "batch": "200",
    "ordinary": "40",
    "retried": "100",
    "worker": "'worker'",
    "lease": "interval '15 minutes'",
    "suspects": "false",
    "token": "1",
}
ONE_LEAF = "metadata->>'_partid' IN ('1','3')"
TWO_LEAVES = "metadata->>'_partid' IN ('4','5','6') OR metadata->>'_partid' IS NULL"


@pytest.fixture(scope="module")
def filled(server: ServerUnderTest, template_database: str) -> Iterator[Factory]:
    """A long queue, made once: no test here changes it."""
    with (
        server.fresh_database(template=template_database) as uri,
        psycopg.connect(uri, autocommit=True, row_factory=namedtuple_row, prepare_threshold=None) as connection,
    ):
        factory = Factory(uri, connection)
        for partid in ("1", "4", None):
            factory.rows(ROWS, partid=partid)
            factory.rows(ROWS, partid=partid, tries=1)
        factory.sql("UPDATE pillarbox.queue SET last_error = '451 Later' WHERE retry_count > 0")
        factory.sql("ANALYZE pillarbox.queue")
        yield factory


def explain(
    factory: Factory, name: str, where: str, mode: str, floor: str | None = None, suspects: str = "false"
) -> dict[str, Any]:
    """The plan that a prepared statement runs by."""
    names = [n for n in TYPES if f"%({n})s" in where_query(name, where, **NOTHING_LOST)]
    text = re.sub(
        r"%\((\w+)\)s", lambda m: f"${names.index(m[1]) + 1}", where_query(name, where, **NOTHING_LOST)
    ).replace("%%", "%")
    values = VALUES | dict.fromkeys(NO_FLOORS, floor or VALUES["floor"]) | {"suspects": suspects}
    factory.sql("DEALLOCATE ALL")
    factory.sql(f"SET plan_cache_mode = {mode}")
    factory.sql(f"PREPARE asked ({', '.join(TYPES[n] for n in names)}) AS {text}")
    [[[plan]]] = factory.sql(f"EXPLAIN (FORMAT JSON) EXECUTE asked ({', '.join(values[n] for n in names)})")
    found: dict[str, Any] = plan["Plan"]
    return found


def due_indexes(factory: Factory) -> set[str]:
    """The parts of the class indexes on the leaves."""
    found = factory.sql(
        """SELECT c.relname
             FROM unnest(ARRAY['queue_due_urgent_fresh', 'queue_due_urgent_retried', 'queue_due_urgent',
                               'queue_due', 'queue_due_retried', 'queue_due_bulk']) AS root(name),
                  pg_partition_tree(to_regclass('pillarbox.' || root.name)) t JOIN pg_class c ON c.oid = t.relid
            WHERE t.isleaf"""
    )
    return {row.relname for row in found}


def parts_of(factory: Factory, index: str, leaves: set[str]) -> set[str]:
    """The parts of this index of the root on these leaves."""
    found = factory.sql(
        """SELECT x.relname
             FROM pg_partition_tree(('pillarbox.' || %(index)s)::regclass) t JOIN pg_class x ON x.oid = t.relid
             JOIN pg_index i ON i.indexrelid = x.oid JOIN pg_class c ON c.oid = i.indrelid
            WHERE t.isleaf AND c.relname = ANY (%(leaves)s)""",
        index=index,
        leaves=list(leaves),
    )
    return {row.relname for row in found}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("floor", [None, "NULL"], ids=["floor", "full-pass"])
@pytest.mark.parametrize(
    ("where", "leaves"),
    [(ONE_LEAF, {"queue_def_123"}), (TWO_LEAVES, {"queue_def_456", "queue_def_def"})],
    ids=["one-leaf", "two-leaves"],
)
def test_a_claim_reads_queue_due_of_its_leaves_only(
    filled: Factory, where: str, leaves: set[str], floor: str | None, mode: str
) -> None:
    plan = list(nodes(explain(filled, "claim", where, mode, floor)))
    read = [
        node for node in plan if node.get("Relation Name", "").startswith("queue_def_") and "Scan" in node["Node Type"]
    ]
    assert {node["Relation Name"] for node in read} == leaves
    assert not any(node["Node Type"] == "Seq Scan" for node in read)
    due = [node for node in read if node.get("Index Name") in due_indexes(filled)]
    assert {node["Relation Name"] for node in due} == leaves, "not every leaf is read by queue_due"
    # Sorting would mean reading every due row first, however few are wanted.
    limits = [
        node for node in plan if node["Node Type"] == "Limit" and node.get("Subplan Name") not in {None, "CTE due"}
    ]
    assert {limit["Subplan Name"] for limit in limits} == {
        f"CTE {name}"
        for name in ("urgent_kept", "urgent_fresh", "urgent_retried", "kept", "ordinary", "retried", "bulk", "suspect")
    }
    for name, index in (("urgent_fresh", "queue_due_urgent_fresh"), ("urgent_retried", "queue_due_urgent_retried")):
        [walk] = [limit for limit in limits if limit["Subplan Name"] == f"CTE {name}"]
        walked = {node["Index Name"] for node in nodes(walk) if "Index Name" in node}
        assert walked == parts_of(filled, index, leaves), "the two classes of urgent mail share an index"
    walks = [limit for limit in limits if limit["Subplan Name"] != "CTE suspect"]
    assert not any(node["Node Type"] in {"Sort", "Incremental Sort"} for limit in walks for node in nodes(limit))
    # Lost mail is little: it may be sorted, but due mail must not be read for it.
    plan = list(nodes(explain(filled, "claim", where, mode, floor, suspects="true")))
    [suspects] = [node for node in plan if node.get("Subplan Name") == "CTE suspect"]
    looked = [node["Index Name"] for node in nodes(suspects) if "Index Name" in node]
    assert set(looked) == parts_of(filled, "queue_suspect", leaves)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_the_next_due_time_is_read_from_the_end_of_queue_due(filled: Factory, mode: str) -> None:
    plan = list(nodes(explain(filled, "claim_next_due", TWO_LEAVES, mode)))
    read = [node for node in plan if "Relation Name" in node]
    assert {node["Relation Name"] for node in read} == {"queue_def_456", "queue_def_def"}
    assert all(node.get("Index Name") in due_indexes(filled) for node in read)
    assert any(node["Node Type"] == "Limit" for node in plan), "every waiting row is read"
