"""test_leaves — which partition ids a statement names, and how they are written

Owns: proofs about queued/claiming/leaves.py by itself; on PostgreSQL: tests/integration/claim/test_leaves.py.
"""

from __future__ import annotations

import pytest

from queued.claiming.leaves import MOST, Leaves, among
from tests.fixtures.daemons.in_hand import in_hand


def test_with_few_leaves_every_statement_names_all_of_their_ids() -> None:
    leaves = Leaves()
    assert leaves.named([in_hand(partid="1", leaf=10)]) == ["1"]
    assert leaves.named([in_hand(partid=None, leaf=11), in_hand(partid="2", leaf=10)]) == ["1", "2", None]
    assert leaves.named([in_hand(partid="1", leaf=10)]) == ["1", "2", None]


def test_many_leaves_are_named_block_by_block() -> None:
    leaves = Leaves()
    claimed = [in_hand(partid=str(n), leaf=n) for n in range(2 * MOST + 3)]
    portions = leaves.portions(claimed)
    assert [len(each) for each in portions] == [MOST, MOST, 3]
    assert [c for each in portions for c in each] == claimed
    for portion in portions:
        assert leaves.named(portion) == sorted(str(c.partid) for c in portion)
        assert leaves.first(portion[1:] + claimed, lambda c: c) == portion[1:] + portion
    # One of a block brings the whole block, so that the text comes again.
    assert leaves.named(claimed[:1]) == leaves.named(portions[0])


def test_after_a_repartition_ids_are_named_by_their_new_leaf() -> None:
    leaves = Leaves()
    leaves.named(in_hand(partid=str(n), leaf=1) for n in range(200))
    assert leaves.named([in_hand(partid="7", leaf=1007)]) == ["7"]


def test_the_memory_of_ids_is_bounded() -> None:
    leaves = Leaves()
    for n in range(5000):
        named = leaves.named([in_hand(partid=f"customer {n}", leaf=1)])
        assert f"customer {n}" in named
        assert len(named) <= 1000


@pytest.mark.parametrize(
    ("partids", "condition"),
    [
        (None, "true"),
        ([], "q.status <> 'HOLD' AND (false)"),
        ([None], "q.status <> 'HOLD' AND (q.metadata->>'_partid' IS NULL)"),
        (["1", None], "q.status <> 'HOLD' AND (q.metadata->>'_partid' IN ('1') OR q.metadata->>'_partid' IS NULL)"),
        (["') OR true --", "5%"], "q.status <> 'HOLD' AND (q.metadata->>'_partid' IN (''') OR true --', '5%%'))"),
        (["\\'"], "q.status <> 'HOLD' AND (q.metadata->>'_partid' IN (E'\\\\'''))"),
    ],
)
def test_the_ids_become_a_sql_condition(partids: list[str | None] | None, condition: str) -> None:
    assert among(partids) == condition
