"""test_partitions_plan — the steps between two layouts: few, in order, and each as short as possible

Owns: proofs about operate/partitions/plan.py; tests/property/queue/test_partitions_layouts.py plays the steps through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.partitions.plan import BATCH, LOCK_TIMEOUT, Leftovers, Round, clearing, rounds, script, steps

if TYPE_CHECKING:
    from operate.partitions.layout import Layout

NOW: Layout = {"123": frozenset("123"), "456": frozenset("456")}
ORDER = [*"123456", "7", "8", "9"]


def only(found: list[Round]) -> Round:
    [change] = found
    return change


def test_an_unchanged_layout_needs_no_steps() -> None:
    assert rounds(NOW, dict(reversed(NOW.items()))) == []
    assert script([]) == ""


def test_a_split_copies_one_leaf_and_touches_no_other() -> None:
    change = only(rounds(NOW, {"a": frozenset("1"), "123": frozenset("23"), "456": frozenset("456")}))
    assert (change.sources, change.targets, change.renames) == (("123",), ("123", "a"), ())
    assert all("queue_def_456" not in text for step in steps(change, ORDER) for text in step.sql)


def test_moving_ids_from_or_to_the_default_leaf_copies_it_too() -> None:
    change = only(rounds(NOW, NOW | {"late": frozenset("7")}))
    assert (change.sources, change.targets) == (("def",), ("def", "late"))
    change = only(rounds(NOW, {"456": frozenset("456")}))
    assert (change.sources, change.targets) == (("123", "def"), ("def",))


def test_unrelated_changes_are_separate_rounds() -> None:
    now = {"a": frozenset("12"), "b": frozenset("34"), "same": frozenset("5")}
    found = rounds(
        now,
        {
            "a": frozenset("1"),
            "c": frozenset("2"),
            "b": frozenset("3"),
            "d": frozenset("4"),
            "same": frozenset("5"),
        },
    )
    assert [change.sources for change in found] == [("a",), ("b",)]
    assert (
        found[0].after
        == found[1].before
        == {"a": frozenset("1"), "c": frozenset("2"), "b": frozenset("34"), "same": frozenset("5")}
    )


def test_a_rename_copies_no_rows() -> None:
    change = only(rounds(NOW, {"x": frozenset("123"), "456": frozenset("456")}))
    assert (change.sources, change.targets, change.renames) == ((), (), (("123", "x"),))
    [step] = steps(change, ORDER)
    assert not step.first
    assert not any("pillarbox_repartition." in text for text in step.sql)


def test_two_leaves_may_exchange_their_names() -> None:
    change = only(rounds(NOW, {"123": frozenset("456"), "456": frozenset("123")}))
    assert change.renames == (("123", "456"), ("456", "123"))
    [step] = steps(change, ORDER)
    renames = [text.split("pillarbox.")[1] for text in step.sql if " RENAME TO " in text and "DO $$" not in text]
    assert renames == [
        "queue_def_123 RENAME TO repartition_0",
        "queue_def_456 RENAME TO repartition_1",
        "repartition_0 RENAME TO queue_def_456",
        "repartition_1 RENAME TO queue_def_123",
    ]


def test_every_exclusive_lock_has_a_lock_timeout() -> None:
    *before, switch = steps(only(rounds(NOW, {"all": frozenset("123456")})), ORDER)
    assert sum("ACCESS EXCLUSIVE" in text for step in before for text in step.sql) == 0
    bounded = switch.sql.index(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT}")
    assert "IN ACCESS EXCLUSIVE MODE" in switch.sql[bounded + 1]
    assert "ONLY pillarbox.queue_def, ONLY pillarbox.queue_def_123" in switch.sql[bounded + 1]
    assert switch.first == f"SELECT pillarbox_repartition.catch_up({BATCH})"


def test_bounds_and_checks_use_the_databases_order() -> None:
    made = steps(only(rounds({}, {"a": frozenset({"10", "2"})})), ["2", "10"])
    text = "\n".join(text for step in made for text in step.sql)
    assert text.count("FOR VALUES IN ('2', '10')") == 2
    assert text.count("ARRAY['2', '10']") == 2
    assert "'10', '2'" not in text


def test_a_quote_in_an_id_is_escaped() -> None:
    change = only(rounds({"a": frozenset({"it's", "1"})}, {"b": frozenset({"it's"}), "c": frozenset("1")}))
    text = "".join(text for step in steps(change, ["1", "it's"]) for text in step.sql)
    assert text.count("FOR VALUES IN ('it''s')") == 2
    assert "it's" not in text


def test_leftovers_are_removed_leaf_by_leaf_before_their_schema() -> None:
    found = clearing(Leftovers(("queue_def_123", "queue_def_def"), shield=True, schema=True))
    assert [step.tables for step in found] == [("queue_def_123",), ("queue_def_def",), ("queue_def_def",), ()]
    assert "DROP SCHEMA" in found[-1].sql[0]
    assert not Leftovers()


def test_the_script_names_repeated_steps_and_wraps_each_in_a_transaction() -> None:
    text = script(steps(only(rounds(NOW, {"all": frozenset("123456")})), ORDER))
    assert text.count("BEGIN;") == text.count("COMMIT;")
    assert "-- until it returns less than 1:\nSELECT pillarbox_repartition.copy('pillarbox.queue_def_123'" in text
    assert "-- first, and before every further try" in text
    assert "{" not in text.replace("'{}'", "")
