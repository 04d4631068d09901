"""test_partitions_balance — an even division of partition ids, without needless moves

Owns: proofs about operate/partitions/balance.py.
"""

from __future__ import annotations

import pytest

from operate.partitions.balance import balance, heaviest
from shared.errors import PillarboxError

NOW = {"123": frozenset("123"), "456": frozenset("456")}


def test_heavy_ids_are_spread_and_leaves_keep_the_names_they_share_most_with() -> None:
    weights = {"1": 60, "2": 40, "3": 10, "4": 5, "5": 5}
    assert balance(NOW, weights) == {"123": frozenset("16"), "456": frozenset("2345")}


def test_a_nearly_even_layout_is_kept() -> None:
    assert balance(NOW, {"1": 100, "2": 1, "4": 95}) is NOW


def test_the_number_of_leaves_and_new_ids_may_be_given() -> None:
    proposed = balance(NOW, {"1": 3, "2": 3, "3": 3, "x": 3}, 4)
    assert len(proposed) == 4
    assert {"123", "456"} <= proposed.keys()
    assert proposed.keys() - NOW.keys() == {"b1", "b2"}
    assert frozenset().union(*proposed.values()) == frozenset("123456x")
    assert heaviest(proposed, {"1": 3, "2": 3, "3": 3, "x": 3}) == 3


def test_ids_without_mail_fill_leaves_too() -> None:
    proposed = balance(NOW, {"1": 9.0}, 6)
    assert sorted(len(ids) for ids in proposed.values()) == [1] * 6


def test_a_single_leaf_gets_all_ids() -> None:
    assert list(balance(NOW, {}, 1).values()) == [frozenset("123456")]


@pytest.mark.parametrize("leaves", [0, 7, -1])
def test_an_impossible_number_of_leaves_is_refused(leaves: int) -> None:
    with pytest.raises(PillarboxError, match="not usable for 6 partition ids; allowed: 1 to 6"):
        balance(NOW, {}, leaves)
