"""test_audit — missing parts of the queue's tables are found, explained and repaired while they hold mail

Owns: proofs about operate/partitions/audit.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.database.partitions import assert_no_traces, configure, contents, pillarbox
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

BREAKAGES = {
    "arrived": ("DROP TRIGGER queue_arrived ON pillarbox.queue_def_123", {"trigger"}),
    "left on the root": ("DROP TRIGGER queue_left ON pillarbox.queue", {"trigger"}),
    "truncated": ("DROP TRIGGER queue_truncated ON pillarbox.queue_def", {"trigger"}),
    "disabled": ("ALTER TABLE pillarbox.queue_def_456 DISABLE TRIGGER queue_left", {"disabled"}),
    "all disabled": ("ALTER TABLE pillarbox.queue_def_def DISABLE TRIGGER USER", {"disabled"}),
    "held": ("DROP TRIGGER queue_arrived ON pillarbox.queue_hold", {"trigger"}),
    "twice": (
        """CREATE TRIGGER messages_refcount AFTER INSERT ON pillarbox.queue_def_123 REFERENCING NEW TABLE AS arrived
           FOR EACH STATEMENT EXECUTE FUNCTION pillarbox.queue_arrived()""",
        {"twice"},
    ),
    "unique": ("ALTER TABLE pillarbox.queue_def_123 DROP CONSTRAINT queue_def_123_id_key", {"unique"}),
    "unique held": ("ALTER TABLE pillarbox.queue_hold DROP CONSTRAINT queue_hold_id_key", {"unique"}),
    "storage": ("ALTER TABLE pillarbox.queue_def_456 RESET (fillfactor, autovacuum_vacuum_threshold)", {"storage"}),
    "index": ("CREATE INDEX queue_late ON ONLY pillarbox.queue (ts) WHERE priority = 0", {"index"}),
    "index of leaves": (
        """CREATE INDEX queue_late ON ONLY pillarbox.queue (ts); CREATE INDEX hold_late ON pillarbox.queue_hold (ts);
           CREATE INDEX def_late ON ONLY pillarbox.queue_def (ts); CREATE INDEX other ON pillarbox.queue_def_def (ts);
           ALTER INDEX pillarbox.queue_late ATTACH PARTITION pillarbox.hold_late;
           ALTER INDEX pillarbox.queue_late ATTACH PARTITION pillarbox.def_late;
           ALTER INDEX pillarbox.def_late ATTACH PARTITION pillarbox.other""",
        {"index"},
    ),
}
SHAPE = """
    SELECT c.relname, c.reloptions,
           (SELECT array_agg(tgname || tgenabled::text ORDER BY tgname)
              FROM pg_trigger WHERE tgrelid = c.oid) AS triggers,
           (SELECT array_agg(pg_get_constraintdef(oid) ORDER BY pg_get_constraintdef(oid))
              FROM pg_constraint WHERE conrelid = c.oid) AS constraints
      FROM pg_partition_tree('pillarbox.queue') t JOIN pg_class c ON c.oid = t.relid ORDER BY 1"""


@pytest.fixture
def folder(factory: Factory, tmp_path: Path) -> Path:
    """A configuration of the leaves there are, and mail in each."""
    for partid in ("1", "4", "x", None):
        factory.rows(10, partid=partid)
    factory.rows(3, status="HOLD")
    return configure(tmp_path, factory.uri, LEAVES)


def faults(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    """The faults that `show` finds."""
    capsys.readouterr()
    status = pillarbox(folder, "show", "--json")
    found: list[dict[str, str]] = json.loads(capsys.readouterr().out)["faults"]
    assert status == bool(found)
    return found


def test_a_queue_as_migrate_makes_it_has_no_faults(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert faults(folder, capsys) == []
    assert pillarbox(folder, "apply", "--repair", "--yes") == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_each_fault_is_found_and_repaired(
    factory: Factory, folder: Path, breakage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    statement, kinds = BREAKAGES[breakage]
    before, shape = (
        contents(factory),
        [(row.relname, sorted(row.reloptions or []), *row[2:]) for row in factory.sql(SHAPE)],
    )
    factory.sql(statement)
    found = faults(folder, capsys)
    assert {fault["fault"] for fault in found} == kinds
    assert pillarbox(folder, "show") == 1
    printed = capsys.readouterr().out
    assert all(f"fault: {fault['leaf']} " in printed for fault in found)
    assert pillarbox(folder, "apply", "--repair", "--yes") == 0
    assert faults(folder, capsys) == []
    assert contents(factory) == before
    assert [(row.relname, sorted(row.reloptions or []), *row[2:]) for row in factory.sql(SHAPE)] == shape
    assert factory.one("SELECT bool_and(indisvalid) FROM pg_index WHERE indrelid = 'pillarbox.queue'::regclass")
    assert_no_traces(factory)


def test_leftovers_of_an_interrupted_run_are_reported(
    factory: Factory, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    factory.sql("CREATE SCHEMA pillarbox_repartition")
    assert pillarbox(folder, "show") == 0
    assert "a repartitioning was interrupted" in capsys.readouterr().out
    assert pillarbox(folder, "apply", "--yes") == 0
    assert_no_traces(factory)
