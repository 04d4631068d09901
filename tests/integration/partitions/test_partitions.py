"""test_partitions — every verb changes the leaves as requested and preserves every row

Owns: proofs about scripts/partitions/command.py and operate/partitions/run.py; test_interrupted.py has
    the kills.
"""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from operate.partitions.plan import fill
from shared.postgres.migrate import migrate
from tests.fixtures.database.partitions import assert_no_traces, bounds, configure, contents, leaves, pillarbox
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

IDS = ["1", "2", "3", "4", "5", "6", "7", "8", None]


@pytest.fixture
def folder(factory: Factory, tmp_path: Path) -> Path:
    """A configuration of the leaves there are, and mail in every state in every partition."""
    message = factory.message()
    for partid in IDS:
        fresh = factory.rows(20, message=message, partid=partid)
        factory.rows(3, message=message, partid=partid, status="HOLD")
        factory.rows(2, message=message, partid=partid, status="BOUNCE")
        factory.rows(2, partid=partid, due=timedelta(hours=1), tries=2)
        factory.lease(fresh[:5], ends=timedelta(minutes=5))
        factory.lease(fresh[5:7], ends=timedelta(seconds=-5))
    return configure(tmp_path, factory.uri, LEAVES)


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (
            ("split", "123", "into", "a=1", "b=2,3"),
            {"a": {"1"}, "b": {"2", "3"}, "456": {"4", "5", "6"}, "def": {"7", "8", ""}},
        ),
        (("split", "def", "seven=7"), {**{k: set(v) for k, v in LEAVES.items()}, "seven": {"7"}, "def": {"8", ""}}),
        (("merge", "123", "456", "into", "all"), {"all": set("123456"), "def": {"7", "8", ""}}),
        (("merge", "123", "456", "into", "456"), {"456": set("123456"), "def": {"7", "8", ""}}),
        (("move", "3", "456"), {"123": {"1", "2"}, "456": set("3456"), "def": {"7", "8", ""}}),
        (("move", "7", "456"), {"123": {"1", "2", "3"}, "456": set("4567"), "def": {"8", ""}}),
        (("move", "1", "def"), {"123": {"2", "3"}, "456": set("456"), "def": {"1", "7", "8", ""}}),
        (
            ("balance", "--leaves", "3", "--apply", "--weight", "1=9", "--weight", "4=8", "--weight", "5=7"),
            {"123": {"1"}, "456": {"4"}, "b1": {"5"}},
        ),
    ],
)
def test_a_verb_moves_rows_unchanged_and_repeating_it_does_nothing(
    factory: Factory,
    folder: Path,
    words: tuple[str, ...],
    where: dict[str, set[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = contents(factory)
    assert pillarbox(folder, *words, "--yes") == 0
    assert contents(factory) == before
    found = leaves(factory)
    for suffix, ids in where.items():
        assert ids <= found[f"queue_def_{suffix}"]
    assert found.keys() - {"queue_hold", "queue_def_def"} == {f"queue_def_{suffix}" for suffix in where} - {
        "queue_def_def"
    }
    assert_no_traces(factory)
    assert 'leaves:\n  "' in capsys.readouterr().out

    oids = factory.sql("SELECT oid FROM pg_class WHERE relname LIKE 'queue_def%%' ORDER BY oid")
    assert pillarbox(folder, *words, "--yes") == 0
    assert "nothing to do" in capsys.readouterr().out
    assert factory.sql("SELECT oid FROM pg_class WHERE relname LIKE 'queue_def%%' ORDER BY oid") == oids


def test_apply_creates_the_leaves_of_smtpd_yaml_and_migrate_agrees(
    factory: Factory, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(factory)
    named = {"one": ["1"], "rest": ["6", "10", "2"], "456": ["4", "5"], "late": ["8", "7"]}
    configure(folder, factory.uri, named)
    assert pillarbox(folder, "apply", "--yes") == 0
    assert contents(factory) == before
    assert bounds(factory) == {
        "queue_def_one": "FOR VALUES IN ('1')",
        "queue_def_rest": "FOR VALUES IN ('10', '2', '6')",
        "queue_def_456": "FOR VALUES IN ('4', '5')",
        "queue_def_late": "FOR VALUES IN ('7', '8')",
        "queue_def_def": "DEFAULT",
    }
    assert_no_traces(factory)
    assert migrate(factory.uri, named).leaves == ()
    capsys.readouterr()
    assert pillarbox(folder, "show", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["as_configured"]
    assert not shown["interrupted"]
    late = next(leaf for leaf in shown["leaves"] if leaf["leaf"] == "queue_def_late")
    assert late["ids"] == ["7", "8"]
    assert late["by_id"] == {"7": 24, "8": 24}


def test_leaves_that_swap_names_keep_their_rows_in_place(factory: Factory, folder: Path) -> None:
    before = {row.id: (row.leaf, row.partid) for row in factory.queue()}
    nodes = factory.sql("SELECT relname, relfilenode FROM pg_class WHERE relname IN ('queue_def_123', 'queue_def_456')")
    configure(folder, factory.uri, {"123": LEAVES["456"], "456": LEAVES["123"]})
    assert pillarbox(folder, "apply", "--yes") == 0
    after = factory.sql("SELECT relname, relfilenode FROM pg_class WHERE relname IN ('queue_def_123', 'queue_def_456')")
    swapped = {"queue_def_123": "queue_def_456", "queue_def_456": "queue_def_123"}
    assert {swapped[row.relname]: row.relfilenode for row in nodes} == {row.relname: row.relfilenode for row in after}
    for row in factory.queue():
        leaf, partid = before[row.id]
        assert (row.leaf, row.partid) == (swapped.get(leaf, leaf), partid)


def test_the_old_name_of_a_renamed_leaf_can_be_used_again(factory: Factory, folder: Path) -> None:
    before = contents(factory)
    for layout in (
        {"other": LEAVES["123"], "456": LEAVES["456"]},  # 123 gets another name
        {"other": ["1", "2"], "123": ["3"], "456": LEAVES["456"]},  # a new leaf gets the old one
        {"123": ["1", "2"], "456": ["3"], "other": LEAVES["456"]},  # names pass round
        {"123": LEAVES["456"], "456": ["1", "2", "3"]},
        LEAVES,
    ):
        configure(folder, factory.uri, layout)
        assert pillarbox(folder, "apply", "--yes") == 0
        assert {leaf: bounds(factory)[leaf] for leaf in bounds(factory) if leaf != "queue_def_def"}.keys() == {
            f"queue_def_{name}" for name in layout
        }
        assert misnamed(factory) == []
        assert contents(factory) == before


def test_index_names_left_by_an_older_version_do_no_harm(factory: Factory, folder: Path) -> None:
    """That version renamed leaves without their indexes."""
    factory.sql("ALTER TABLE pillarbox.queue_def_123 RENAME TO queue_def_other")
    assert misnamed(factory)
    configure(folder, factory.uri, {"123": ["1"], "other": ["2", "3"], "456": LEAVES["456"]})
    assert pillarbox(folder, "apply", "--yes") == 0
    factory.sql("ALTER TABLE pillarbox.queue_def_456 RENAME TO queue_def_third")
    configure(folder, factory.uri, {"456": ["1", "2"], "other": ["3"], "third": LEAVES["456"]})
    assert pillarbox(folder, "apply", "--yes") == 0
    configure(folder, factory.uri, {"456": ["1"], "123": ["2", "3"], "fourth": LEAVES["456"]})
    assert pillarbox(folder, "apply", "--yes") == 0
    assert misnamed(factory) == []


def test_indexes_of_leaves_with_a_common_prefix_have_unique_names(factory: Factory) -> None:
    """As long as names can be, so that only the last characters differ, which the name of an index has no room for."""
    alike = [f"queue_def_{'x' * 50}{number:02}" for number in range(12)]
    for leaf in alike:
        suffix = leaf.removeprefix("queue_def_")
        factory.sql("SELECT pillarbox.queue_leaf_create(%(id)s, ARRAY[%(id)s])", id=suffix)
        for _ in range(2):  # the second time changes nothing
            factory.sql(fill("partitions_name_indexes", leaf=leaf))
    rows = factory.sql(
        """SELECT x.relname::text AS index FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
             JOIN pg_class t ON t.oid = i.indrelid WHERE t.relname = ANY (%(alike)s)""",
        alike=alike,
    )
    assert len(rows) > 100
    assert all(re.fullmatch("queue_def_x{33}_[0-9a-f]{16}", row.index) for row in rows)


def misnamed(factory: Factory) -> list[tuple[str, str]]:
    """Indexes of leaves that are not called after their leaf."""
    rows = factory.sql(
        """SELECT t.relname::text AS leaf, x.relname::text AS index
             FROM pg_inherits h JOIN pg_class t ON t.oid = h.inhrelid JOIN pg_index i ON i.indrelid = t.oid
             JOIN pg_class x ON x.oid = i.indexrelid
            WHERE h.inhparent = 'pillarbox.queue_def'::regclass AND NOT starts_with(x.relname, t.relname || '_')"""
    )
    return [(row.leaf, row.index) for row in rows]


def test_the_new_leaves_are_like_those_migrate_makes(factory: Factory, folder: Path) -> None:
    shape = """
        SELECT (SELECT array_agg(format('%%s %%s %%s', tgname, tgenabled, tgfoid::regproc) ORDER BY tgname)
                  FROM pg_trigger WHERE tgrelid = c.oid)::text AS triggers,
               (SELECT array_agg(pg_get_constraintdef(oid) ORDER BY pg_get_constraintdef(oid))
                  FROM pg_constraint WHERE conrelid = c.oid)::text AS constraints,
               (SELECT array_agg(d.text ORDER BY d.text)
                  FROM pg_index, substring(pg_get_indexdef(indexrelid) FROM 'USING .*') AS uses,
                       format('%%s %%s', indisunique, uses) AS d (text)
                 WHERE indrelid = c.oid)::text AS indexes,
               (SELECT array_agg(format('%%s %%s %%s %%s %%s', attname, format_type(atttypid, atttypmod), attstorage,
                                        attnotnull, pg_get_expr(adbin, adrelid)) ORDER BY attnum)
                  FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
                 WHERE attrelid = c.oid AND attnum > 0)::text AS columns,
               c.reloptions::text, c.relowner, c.relpersistence, c.relnamespace
          FROM pg_class c WHERE c.oid = to_regclass(%(leaf)s)"""
    [before] = factory.sql(shape, leaf="pillarbox.queue_def_123")
    configure(folder, factory.uri, {"123": ["2", "1"], "456": ["4", "5", "6", "3"], "other": ["8"]})
    assert pillarbox(folder, "apply", "--yes") == 0
    for leaf in ("123", "456", "other", "def"):
        assert factory.sql(shape, leaf=f"pillarbox.queue_def_{leaf}") == [before], leaf


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("split", "123", "a=9"), "id 9: is in leaf def, not in 123"),
        (("split", "nowhere", "a=1"), "leaf nowhere: not there"),
        (("merge", "123", "456"), "expected LEAF… into NAME"),
        (("move", "1", "nowhere"), "leaf nowhere: not there"),
        (("balance", "--weight", "1=many"), "--weight 1=many: not usable"),
        (("balance", "--leaves", "9"), "9 leaves: not usable for 6 partition ids"),
        (("move", "1", "456"), "there is no terminal to ask at; --yes acts, --dry-run only shows"),
    ],
)
def test_invalid_arguments_change_nothing_and_are_one_line(
    factory: Factory, folder: Path, words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = bounds(factory)
    assert pillarbox(folder, *words) != 0
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1
    assert bounds(factory) == before


def test_plan_changes_nothing_and_its_sql_can_be_run_by_hand(
    factory: Factory, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(factory)
    configure(folder, factory.uri, {"all": ["1", "2", "3", "4", "5", "6", "7"]})
    assert pillarbox(folder, "plan", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["rounds"][0]["makes"]["queue_def_all"] == ["1", "2", "3", "4", "5", "6", "7"]
    assert pillarbox(folder, "plan") == 0
    assert "put the new leaves in place of the old ones" in capsys.readouterr().out
    assert pillarbox(folder, "plan", "--sql") == 0
    script = capsys.readouterr().out
    assert set(bounds(factory)) == {"queue_def_123", "queue_def_456", "queue_def_def"}
    factory.sql(script)
    assert contents(factory) == before
    assert set(bounds(factory)) == {"queue_def_all", "queue_def_def"}
    assert_no_traces(factory)


async def test_a_second_concurrent_repartitioning_is_refused(factory: Factory, folder: Path) -> None:
    with factory.another() as session:
        session.execute("LOCK TABLE pillarbox.repartition_lock IN SHARE UPDATE EXCLUSIVE MODE")
        assert await asyncio.to_thread(pillarbox, folder, "move", "1", "456", "--yes") == 1
    assert set(bounds(factory)) == {"queue_def_123", "queue_def_456", "queue_def_def"}
