"""test_bench_flow — the benchmark of the whole way measures what it says, and a peer that is missing is no number

Owns: one tiny run of scripts/bench_flow.py as a program, and proofs of its arithmetic.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scripts.bench_book import POSTFIX, last_line, named
from scripts.bench_flow_report import DRAIN, LATENCY, OURS, Results, flow_table
from tests.fixtures.benchmarks import POSTFIX_IS_HERE, tiny

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_a_tiny_run_measures_everything_and_its_ledgers_agree(tmp_path: Path, smtp_source: Path) -> None:
    ran = await tiny("bench_flow", tmp_path)
    ratio = r"\d+\.\d\d" if POSTFIX_IS_HERE else "unmeasured"
    assert re.fullmatch(
        rf"flow_vs_postfix_4k={ratio} flow_vs_postfix_100k=unmeasured deliver_msgs_s=\d+ "
        r"first_byte_p50_ms=\d+\.\d\d first_byte_p99_ms=\d+\.\d\d",
        ran.last_line,
    ), ran.said
    assert ("Postfix: unmeasured; " in ran.said) is not POSTFIX_IS_HERE
    assert ran.document["settings"]["workers"] == "2"
    for recipients in (1, 20):
        cell = ran.rounds[flow_table(recipients), named(4096)]
        assert set(cell) == ({OURS, POSTFIX, "ratio"} if POSTFIX_IS_HERE else {OURS})
        assert min(cell[OURS]) > 0
    assert all(len(values) == 2 for cell in ran.rounds.values() for values in cell.values())
    latency = ran.rounds[LATENCY, named(4096)]
    assert 0 < min(latency["p50"]) <= min(latency["p99"])


def results(*, peer: bool) -> Results:
    """Three rounds, the second of them slow for both."""
    made = Results({})
    for ours, theirs, p50 in ((900.0, 300.0, 5.0), (200.0, 100.0, 9.0), (840.0, 420.0, 4.0)):
        for size in (4096, 102_400):
            made.add(flow_table(1), named(size), pillarbox=ours, Postfix=theirs if peer else None)
        made.add(DRAIN, named(4096), pillarbox=ours)
        made.add(LATENCY, named(4096), p50=p50, p99=2 * p50)
    return made


def test_ratios_compare_figures_of_the_same_round() -> None:
    line = last_line(results(peer=True).figures())
    assert line == (
        "flow_vs_postfix_4k=2.00 flow_vs_postfix_100k=2.00 deliver_msgs_s=840 first_byte_p50_ms=5.00 "
        "first_byte_p99_ms=10.00"
    )


def test_without_postfix_no_ratio_is_a_number() -> None:
    found = results(peer=False)
    found.compare()
    assert list(found.figures().values()) == [None, None, 840.0, 5.0, 10.0]
