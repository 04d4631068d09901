"""test_partitions_layouts — the steps between any two layouts lead exactly from one to the other

Owns: a little model of PostgreSQL that plays the statements of the plan through: schemas, tables, bounds.
See: operate/partitions/plan.py.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from operate.partitions.balance import balance, heaviest
from operate.partitions.layout import DEFAULT, PREFIX, Layout, natural, owner_of, parse_bound
from operate.partitions.plan import rounds, steps

if TYPE_CHECKING:
    from collections.abc import Iterable

IDS = [str(number) for number in range(1, 9)]
NAMES = ["a", "b", "c", "d", "e"]

_VERBS = re.compile(
    r"""CREATE\ TABLE\ pillarbox_repartition\.(?P<make>\w+)\ PARTITION\ OF\ \S+\ (?P<made>.*)
      | ALTER\ TABLE\ pillarbox_repartition\.queue_def\ DETACH\ PARTITION\ pillarbox_repartition\.(?P<ready>\w+)
      | ALTER\ TABLE\ pillarbox_repartition\.(?P<bring>\w+)\ SET\ SCHEMA\ pillarbox
      | ALTER\ TABLE\ pillarbox\.queue_def\ DETACH\ PARTITION\ pillarbox\.(?P<detach>\w+)
      | DROP\ TABLE\ pillarbox\.(?P<drop>\w+)
      | ALTER\ TABLE\ pillarbox\.queue_def\ ATTACH\ PARTITION\ pillarbox\.(?P<attach>\w+)\ (?P<bound>.*)
      | ALTER\ TABLE\ pillarbox\.(?P<rename>\w+)\ RENAME\ TO\ (?P<name>\w+)
      | CREATE\ TRIGGER\ repartition_capture\ .*\ ON\ pillarbox\.(?P<capture>\w+)""",
    re.VERBOSE,
)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any layout of some of eight ids in some of five leaves."""
    owners = draw(st.lists(st.sampled_from([*NAMES, DEFAULT]), min_size=len(IDS), max_size=len(IDS)))
    found: dict[str, set[str]] = {}
    for id_, name in zip(IDS, owners, strict=True):
        if name != DEFAULT:
            found.setdefault(name, set()).add(id_)
    return {name: frozenset(ids) for name, ids in found.items()}


class Model:
    """Attached and loose tables by name, each with its bound; which ids' rows each holds."""

    def __init__(self, layout: Layout) -> None:
        self.queue = {PREFIX + name: ids for name, ids in layout.items()} | {PREFIX + DEFAULT: None}
        self.loose: dict[str, frozenset[str] | None] = {}
        self.staged: dict[str, frozenset[str] | None] = {}
        self.captured: set[str] = set()

    @property
    def layout(self) -> Layout:
        return {name.removeprefix(PREFIX): ids for name, ids in self.queue.items() if ids is not None}

    def play(self, texts: Iterable[str]) -> None:
        for text in texts:
            for statement in text.split(";\n"):
                if match := _VERBS.match(statement.strip()):
                    self._act({key: value for key, value in match.groupdict().items() if value is not None})

    def _act(self, words: dict[str, str]) -> None:
        match words:
            case {"make": leaf, "made": bound}:
                assert leaf not in self.staged
                self.staged[leaf] = None if bound == "DEFAULT" else parse_bound(leaf, bound)
            case {"ready": leaf}:
                assert leaf in self.staged
            case {"bring": leaf}:
                assert leaf not in self.queue.keys() | self.loose.keys(), "a name is taken"
                self.loose[leaf] = self.staged.pop(leaf)
            case {"detach": leaf}:
                assert leaf in self.captured, "its changes are lost"
                self.loose[leaf] = self.queue.pop(leaf)
            case {"drop": leaf}:
                del self.loose[leaf]
            case {"attach": leaf, "bound": bound}:
                ids = self.loose.pop(leaf)
                assert ids == (None if bound == "DEFAULT" else parse_bound(leaf, bound))
                for other in self.queue.values():
                    assert not (ids or set()) & (other or set()), "bounds overlap"
                self.queue[leaf] = ids
            case {"rename": leaf, "name": name}:
                assert name not in self.queue, "a name is taken"
                self.queue[name] = self.queue.pop(leaf)
            case {"capture": leaf}:
                self.captured.add(leaf)


@given(st.lists(layouts(), min_size=2, max_size=5))
def test_the_steps_end_in_the_wanted_layout(sequence: list[Layout]) -> None:
    model = Model(sequence[0])
    for existing, wanted in pairwise(sequence):
        for change in rounds(existing, wanted):
            assert model.layout == change.before
            staying = {
                leaf: ids for leaf, ids in model.queue.items() if leaf.removeprefix(PREFIX) not in change.sources
            }
            # Every id whose rows are copied away has a new leaf among the targets, and vice versa.
            moved = {id_ for id_ in IDS if owner_of(change.before, id_) in change.sources}
            placed = {id_ for id_ in IDS if owner_of(change.after, id_) in change.targets}
            assert moved == placed
            for step in steps(change, IDS):
                model.play(step.sql)
            assert model.layout == change.after
            assert (model.loose, model.staged) == ({}, {})
            assert {ids for ids in staying.values() if ids} <= set(model.queue.values())
            model.captured.clear()
        assert model.layout == wanted
        assert PREFIX + DEFAULT in model.queue


@given(layouts(), layouts())
def test_after_any_round_the_remaining_rounds_are_planned_again(existing: Layout, wanted: Layout) -> None:
    """After a kill there, the same command finishes."""
    for number in range(len(rounds(existing, wanted))):
        half_way = rounds(existing, wanted)[number].after
        rest = rounds(half_way, wanted)
        assert len(rest) == len(rounds(existing, wanted)) - number - 1
        assert (rest[-1].after if rest else half_way) == wanted


@given(layouts(), st.dictionaries(st.sampled_from(IDS), st.integers(0, 1000)), st.integers(1, 8))
def test_a_balanced_layout_has_every_id_once_and_is_nearly_optimal(
    layout: Layout, weights: dict[str, int], leaves: int
) -> None:
    ids = frozenset(weights).union(*layout.values())
    if leaves > len(ids):
        return
    found = balance(layout, weights, leaves)
    assert len(found) == leaves
    assert sorted((id_ for group in found.values() for id_ in group), key=natural) == sorted(ids, key=natural)
    least = max(sum(weights.values()) / leaves, *weights.values(), 0)
    assert heaviest(found, weights) <= 2 * least / 0.9
