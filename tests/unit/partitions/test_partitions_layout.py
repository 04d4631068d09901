"""test_partitions_layout — the layouts after split, merge and move, and their one-line refusals

Owns: proofs about operate/partitions/layout.py.
"""

from __future__ import annotations

import pytest

from operate.partitions.layout import Layout, merge, move, parse_bound, read_parts, split, suffix_of, wanted, yaml
from shared.errors import PillarboxError


def layout(**leaves: str) -> Layout:
    return {name.lstrip("_"): frozenset(ids.split()) for name, ids in leaves.items()}


NOW = layout(_123="1 2 3", _456="4 5 6")


@pytest.mark.parametrize(
    ("bound", "ids"),
    [
        ("FOR VALUES IN ('1', '2', '3')", {"1", "2", "3"}),
        ("FOR VALUES IN ('it''s, really', ')')", {"it's, really", ")"}),
        (r"FOR VALUES IN (E'back\\slash', 'plain')", {r"back\slash", "plain"}),
    ],
)
def test_bounds_are_read_as_postgresql_prints_them(bound: str, ids: set[str]) -> None:
    assert parse_bound("queue_def_x", bound) == ids


@pytest.mark.parametrize("bound", ["DEFAULT", "FOR VALUES IN ('1', NULL)", "FOR VALUES FROM ('a') TO ('b')"])
def test_an_invalid_partition_bound_is_refused(bound: str) -> None:
    with pytest.raises(PillarboxError, match=r"queue_def_x: its bound .* is not a list"):
        parse_bound("queue_def_x", bound)


def test_only_our_leaves_have_a_suffix() -> None:
    assert (suffix_of("queue_def_123"), suffix_of("queue_def_def")) == ("123", "def")
    # The index of the leaf x is queue_def_x_id_key.
    for leaf in (
        "queue_hold",
        "queue_def_Upper",
        "queue_def_" + "x" * 33,
        "other",
        "queue_def_x_id_key",
        "queue_def_x_queue_due",
        "queue_def_x_idx6",
    ):
        with pytest.raises(PillarboxError, match=f"{leaf}: not a leaf of ours"):
            suffix_of(leaf)


def test_split_moves_ids_out_and_keeps_the_others() -> None:
    assert split(NOW, "123", layout(a="1")) == layout(_123="2 3", _456="4 5 6", a="1")
    assert split(NOW, "queue_def_123", layout(a="1", b="2 3")) == layout(_456="4 5 6", a="1", b="2 3")
    assert split(NOW, "123", layout(_123="1", b="2 3")) == layout(_123="1", _456="4 5 6", b="2 3")


def test_split_of_the_default_leaf_makes_leaves() -> None:
    assert split(NOW, "def", layout(late="7 x")) == NOW | layout(late="7 x")


def test_merge_and_move() -> None:
    assert merge(NOW, ["123", "456"], "all") == layout(all="1 2 3 4 5 6")
    assert merge(NOW, ["123", "456"], "456") == layout(_456="1 2 3 4 5 6")
    assert move(NOW, "3", "456") == layout(_123="1 2", _456="3 4 5 6")
    assert move(NOW, "9", "123") == layout(_123="1 2 3 9", _456="4 5 6")
    assert move(NOW, "1", "def") == layout(_123="2 3", _456="4 5 6")
    assert move(layout(a="1", b="2"), "1", "b") == layout(b="1 2")


def test_repeating_a_verb_changes_nothing() -> None:
    parts = layout(a="1", b="2 3")
    once = split(NOW, "123", parts)
    assert split(once, "123", parts) == once
    once = merge(NOW, ["123", "456"], "all")
    assert merge(once, ["123", "456"], "all") == once
    once = move(NOW, "3", "456")
    assert move(once, "3", "456") == once


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({}, "at least one NAME="),
        (layout(a="4"), "id 4: is in leaf 456, not in 123"),
        (layout(a="9"), "id 9: is in leaf def, not in 123"),
        (layout(_456="1"), "leaf 456: is there already"),
        (layout(_123="1"), "ids 2, 3 would stay in it"),
    ],
)
def test_an_invalid_split_is_refused(parts: Layout, why: str) -> None:
    with pytest.raises(PillarboxError, match=why):
        split(NOW, "123", parts)


def test_an_invalid_merge_or_move_is_refused() -> None:
    for leaves, into, why in (
        (["123", "nowhere"], "all", "leaf nowhere: not there; there are 123, 456 and def"),
        (["123"], "456", "leaf 456: is there already"),
        (["123", "def"], "all", "leaf def: cannot be merged"),
    ):
        with pytest.raises(PillarboxError, match=why):
            merge(NOW, leaves, into)
    for id_, leaf, why in (("1", "nowhere", "leaf nowhere: not there"), ("a b", "123", 'id "a b": not usable')):
        with pytest.raises(PillarboxError, match=why):
            move(NOW, id_, leaf)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["a"], '"a": not usable; allowed: NAME=ID,ID…'),
        (["a=1", "a=2"], '"a=2": not usable'),
        (["a="], "leaf a: no partition ids"),
        (["A=1"], 'leaf "A": not usable; allowed: 1 to 32 of a-z'),
        (["def=1"], 'leaf "def": not usable'),
        (["a=1;drop"], 'id "1;drop": not usable'),
        (["a=1", "b=1"], "id 1: in leaf a and in leaf b"),
    ],
)
def test_invalid_parts_are_refused(words: list[str], why: str) -> None:
    with pytest.raises(PillarboxError, match=why) as refusal:
        read_parts(words)
    assert "\n" not in str(refusal.value)


def test_printed_yaml_is_valid_configuration() -> None:
    assert read_parts(["a=10, 2", "b=x"]) == layout(a="10 2", b="x")
    assert yaml(layout(b="11", a="10 2")) == 'leaves:\n  "a": ["2", "10"]\n  "b": ["11"]'
    assert yaml({}) == "leaves: {}"
    assert wanted({"a": ["1", "1"]}) == layout(a="1")
