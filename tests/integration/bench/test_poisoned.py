"""test_poisoned — the benchmark of healthy mail beside poisoned domains measures what it claims, under its conditions

Owns: one short run of scripts/bench/poisoned/__main__.py as a program, and proofs of its arithmetic.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scripts.bench.book import last_line
from scripts.bench.poisoned.__main__ import _POISONS, _QUIETLY, _TABLE, Results
from tests.fixtures.daemons.benchmarks import tiny

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_a_short_run_measures_every_poison_beside_quiet_mail(tmp_path: Path) -> None:
    ran = await tiny("poisoned", tmp_path, "--rounds", "1")
    assert re.fullmatch(
        r"poisoned_p99_ratio=(\d+\.\d\d|unmeasured) quiet_p99_ms=\d+\.\d\d poisoned_p99_ms=\d+\.\d\d "
        r"healthy_messages_s=\d+",
        ran.last_line,
    ), ran.said
    assert ran.document["notes"] == [], "all healthy mail arrived, and no poison was gone before"
    assert {what for _, what in ran.rounds} == {_QUIETLY, *_POISONS}
    for what in _POISONS:
        # Not the ratio: that is for a machine of one's own. Before, nothing arrived within minutes.
        assert max(ran.rounds[_TABLE, what]["p50"]) < 5000


def results(quiet: float, poisoned: float, rate: float) -> Results:
    made = Results({})
    made.add(_TABLE, _QUIETLY, **{"p50": 1.0, "p99": quiet, "messages/s": rate})
    for number, name in enumerate(_POISONS):
        made.add(_TABLE, name, **{"p50": 1.0, "p99": poisoned / (1 + number), "messages/s": rate})
    return made


def test_the_worst_poison_counts_and_both_absolute_values_are_printed() -> None:
    line = last_line(results(20.0, 30.0, 220.0).figures())
    assert line == "poisoned_p99_ratio=1.50 quiet_p99_ms=20.00 poisoned_p99_ms=30.00 healthy_messages_s=220"


@pytest.mark.parametrize(("quiet", "rate"), [(50.1, 220.0), (20.0, 199.0)])
def test_without_its_preconditions_the_ratio_is_unmeasured(quiet: float, rate: float) -> None:
    assert results(quiet, 30.0, rate).figures()["poisoned_p99_ratio"] is None


def test_poison_that_ended_early_does_not_count() -> None:
    made = results(20.0, 30.0, 220.0)
    made.notes.append("gone")
    assert made.figures()["poisoned_p99_ratio"] is None
