"""balance — proposes which partition ids should share a leaf, by their weight

Owns: the greedy division of ids among leaves, heaviest id first into the lightest leaf (pure); reading weights from a
    report of the analytics.
Guarantees: every id given is in exactly one leaf; the heaviest leaf weighs at most 4/3 of the best division there is.
    The same weights give the same layout. A layout that is nearly as even already is kept, for moving costs more than
    a few per cent of imbalance.
See: R. L. Graham, "Bounds on Multiprocessing Timing Anomalies", 1969, for the 4/3.
"""

from __future__ import annotations

import json
import math
from itertools import count
from typing import TYPE_CHECKING, Final

from operate.errors import Refused
from operate.partitions.layout import check_id, natural
from shared.errors import PillarboxError
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from operate.partitions.layout import Layout

#: The share by which the heaviest leaf must become lighter for a proposal to be worth its copying.
WORTH: Final = 0.1


def balance(layout: Layout, weights: Mapping[str, float], leaves: int | None = None) -> Layout:
    """A layout of `leaves` leaves (default: as many as there are) for the ids of the layout and of the weights.

    `weights`: what an id costs, in rows or any other unit; an id of the layout without one weighs nothing.
    """
    ids = sorted(frozenset(weights).union(*layout.values()), key=natural)
    number = len(layout) if leaves is None else leaves
    if not 1 <= number <= len(ids):
        wanted, there = how_many(number, "leaf"), how_many(len(ids), "partition id")
        raise Refused(f"{wanted}: not usable for {there}; allowed: 1 to {len(ids)}")
    proposed = _named(layout, _divided(ids, weights, number), weights)
    even = number == len(layout) and frozenset(ids) == frozenset[str]().union(*layout.values())
    if even and heaviest(proposed, weights) > heaviest(layout, weights) * (1 - WORTH):
        return layout
    return proposed


def read_report(path: Path) -> dict[str, float]:
    """The weights in the JSON of `pillarbox analytics report`: ids, and the seconds that their tries took.

    Raises PillarboxError for a file that is none, or weighs nothing.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        [section] = [each for each in document["sections"] if each["key"] == "weights"]
        found = {str(row["partid"]): float(row["seconds"]) for row in section["rows"] if row["partid"][:1] != "("}
    except OSError as error:
        raise PillarboxError(f"--from-report {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):  # JSON and UTF-8 that are none are ValueErrors
        raise PillarboxError(
            f"--from-report {path}: not a report; allowed: the output of `pillarbox analytics report --json`"
        ) from None
    for id_, weight in found.items():
        check_id(id_)
        if not (math.isfinite(weight) and weight >= 0):
            raise PillarboxError(f"--from-report {path}: {id_} weighs {weight}; allowed: a number from 0")
    if not found:
        raise PillarboxError(f"--from-report {path}: weighs no partition id; no attempt in its time had one")
    return found


def heaviest(layout: Layout, weights: Mapping[str, float]) -> float:
    """The weight of the heaviest leaf."""
    return max((weigh(ids, weights) for ids in layout.values()), default=0.0)


def weigh(ids: frozenset[str], weights: Mapping[str, float]) -> float:
    """The weight of these ids together."""
    return sum((weights.get(id_, 0.0) for id_ in sorted(ids)), start=0.0)


def _divided(ids: list[str], weights: Mapping[str, float], number: int) -> list[frozenset[str]]:
    groups: list[set[str]] = [set() for _ in range(number)]
    loads = [0.0] * number
    for id_ in sorted(ids, key=lambda id_: -weights.get(id_, 0.0)):  # stable: equals stay in natural order
        # Fewest ids among equally light leaves, so that ids without mail spread too and no leaf stays empty.
        lightest = min(range(number), key=lambda leaf: (loads[leaf], len(groups[leaf])))
        groups[lightest].add(id_)
        loads[lightest] += weights.get(id_, 0.0)
    return [frozenset(group) for group in groups]


def _named(layout: Layout, groups: list[frozenset[str]], weights: Mapping[str, float]) -> Layout:
    """Groups under the names of the leaves they share most with, so that few rows move; the rest get new names."""
    shares = sorted(
        (
            (-weigh(ids & group, weights), -len(ids & group), name, number)
            for name, ids in layout.items()
            for number, group in enumerate(groups)
            if ids & group
        ),
    )
    named: Layout = {}
    left = dict(enumerate(groups))
    for _, _, name, number in shares:
        if name not in named and number in left:
            named[name] = left.pop(number)
    fresh = _fresh(layout)
    return named | {next(fresh): group for group in left.values()}


def _fresh(layout: Layout) -> Iterator[str]:
    return (name for number in count(1) if (name := f"b{number}") not in layout)
