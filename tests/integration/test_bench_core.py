"""test_bench_core — the benchmark of the core measures what it says, and refuses what does not add up

Owns: one tiny run of scripts/bench_core.py as a program, and proofs of its arithmetic and its ledger.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from scripts.bench_book import last_line
from scripts.bench_core_report import Results
from scripts.bench_core_server import agree, content
from shared.errors import PillarboxError
from tests.fixtures.benchmarks import run, tiny

if TYPE_CHECKING:
    from pathlib import Path

LAST_LINE = re.compile(
    r"schedule_rows_s=\d+ settle_rows_s=\d+ settle_vs_pgmq=unmeasured drain_vs_pgqueuer=unmeasured "
    r"wake_p50_ms=\d+\.\d\d wake_p99_ms=\d+\.\d\d backlog_ratio=\d+\.\d\d"
)


class Ledger(NamedTuple):
    """A row as the driver makes it."""

    waiting: int
    archived: int


@pytest.mark.slow
async def test_a_tiny_run_measures_everything_and_its_ledgers_agree(tmp_path: Path) -> None:
    ran = await tiny("bench_core", tmp_path)
    assert LAST_LINE.fullmatch(ran.last_line)
    assert "PGMQ_SQL" in ran.said, "how to measure pgmq is not said"
    assert all(len(values) == 2 and min(values) >= 0 for cell in ran.rounds.values() for values in cell.values())
    for batch in (50, 500):
        for workers in (1, 2, 4):
            cell = ran.rounds["claim + settle", f"batch {batch}, {workers} workers"]
            assert min(cell["rows/s"]) > 0
            assert min(cell["HOT"]) > 0.9, "a claim found no room on its page"
            assert min(cell["WAL octets"]) > 1024, "a body was not written"


async def test_a_file_for_pgmq_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    status, _, complaints = await run(
        "bench_core", "--quick", "--var", str(tmp_path), PGMQ_SQL=str(tmp_path / "absent.sql")
    )
    assert status == 78
    [line] = complaints.splitlines()
    assert re.search(r"PGMQ_SQL: .*absent\.sql is not a file", line)


def test_a_ledger_that_does_not_agree_is_refused() -> None:
    found = Ledger(waiting=0, archived=99)
    agree("drain", found, {"waiting": 0, "archived": 99})
    with pytest.raises(PillarboxError, match="drain: the ledger does not agree: archived 99, expected 100"):
        agree("drain", found, {"waiting": 0, "archived": 100})


def book(*, peers: bool) -> Results:
    """Three rounds, the second of them slow for both sides."""
    made = Results({})
    for settle, theirs in ((100.0, 50.0), (10.0, 10.0), (90.0, 30.0)):
        made.add("schedule, 1 KB", "group 500", **{"rows/s": 7.4})
        made.add("claim + settle", "batch 500, 4 workers", **{"rows/s": settle})
        made.add("claim + settle", "batch 1, 1 workers", **{"rows/s": 1.0})
        if peers:
            made.add("pgmq", "batch 100, 4 workers", **{"rows/s": theirs})
            made.add("pgmq", "batch 500, 4 workers", **{"rows/s": 2 * theirs})
            made.add("PgQueuer", "batch 200, 2 consumers", **{"rows/s": theirs / 2})
        made.add("wake-up", "quiet", **{"p50 ms": 1.0, "p99 ms": 2.345, "claim ms": 2.0})
        made.add("wake-up", "deferred backlog", **{"p50 ms": 1.0, "p99 ms": 2.0, "claim ms": 2.5})
    return made


def test_ratios_compare_figures_of_the_same_round() -> None:
    line = last_line(book(peers=True).figures())
    assert line == (
        "schedule_rows_s=7 settle_rows_s=90 settle_vs_pgmq=2.00 drain_vs_pgqueuer=4.00 "
        "wake_p50_ms=1.00 wake_p99_ms=2.35 backlog_ratio=1.25"
    )


def test_what_was_not_measured_is_no_number() -> None:
    figures = book(peers=False).figures()
    assert figures["settle_vs_pgmq"] is None
    assert "settle_vs_pgmq=unmeasured drain_vs_pgqueuer=unmeasured" in last_line(figures)


@pytest.mark.parametrize("size", [100, 1024, 51_200])
def test_bodies_have_their_size_and_whole_lines(size: int) -> None:
    made = content(size)
    assert len(made) == size
    assert made.endswith(b"\r\n")
    assert made != content(size), "PostgreSQL could compress what repeats"
