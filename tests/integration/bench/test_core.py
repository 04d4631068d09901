"""test_core — the benchmark of the core measures what it claims, and rejects results whose ledger does not agree

Owns: one tiny run of scripts/bench/core/__main__.py as a program, and proofs of its arithmetic and its ledger.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from scripts.bench.book import last_line
from scripts.bench.core.report import PGQUEUER, SETTLE, Results, peer_row, row
from scripts.bench.core.server import agree, content
from scripts.bench.run import write
from shared.errors import PillarboxError
from tests.fixtures.daemons.benchmarks import run, tiny

LAST_LINE = re.compile(
    r"schedule_rows_s=\d+ settle_rows_s=\d+ settle_vs_pgmq=unmeasured settle_vs_pgmq_alike=unmeasured "
    r"settle_vs_pgmq_worst=unmeasured drain_vs_pgqueuer=unmeasured drain_vs_pgqueuer_2=unmeasured "
    r"wake_p50_ms=\d+\.\d\d wake_p99_ms=\d+\.\d\d backlog_ratio=\d+\.\d\d"
    r"( leaves_\w+_3=\d+(\.\d\d)?| leaves_\w+_[15]00=unmeasured){9}"
)


class Ledger(NamedTuple):
    """A row as the driver makes it."""

    waiting: int
    archived: int


@pytest.mark.slow
async def test_a_tiny_run_measures_everything_and_its_ledgers_agree(tmp_path: Path) -> None:
    ran = await tiny("core", tmp_path)
    assert LAST_LINE.fullmatch(ran.last_line)
    assert "PGMQ_SQL" in ran.said, "how to measure pgmq is not said"
    for (table, _), cell in ran.rounds.items():  # leaves take long to make, and are measured in the first round alone
        assert all(len(values) == 1 + (table != "leaves") and min(values) >= 0 for values in cell.values())
    for batch in (50, 500):
        for workers in (1, 2, 4):
            cell = ran.rounds[SETTLE, row(batch, workers)]
            assert min(cell["rows/s"]) > 0
            assert min(cell["HOT"]) > 0.9, "a claim found no room on its page"
            assert min(cell["WAL octets"]) > 1024, "a body was not written"


async def test_a_missing_pgmq_file_is_one_line(tmp_path: Path) -> None:
    status, _, complaints = await run("core", "--quick", "--var", str(tmp_path), PGMQ_SQL=str(tmp_path / "absent.sql"))
    assert status == 78
    [line] = complaints.splitlines()
    assert re.search(r"PGMQ_SQL: .*absent\.sql is not a file", line)


def test_a_ledger_that_does_not_agree_is_refused() -> None:
    found = Ledger(waiting=0, archived=99)
    agree("drain", found, {"waiting": 0, "archived": 99})
    with pytest.raises(PillarboxError, match="drain: the ledger does not agree: archived 99, expected 100"):
        agree("drain", found, {"waiting": 0, "archived": 100})


def book(*, peers: bool) -> Results:
    """Three rounds, of which the second is slow for all systems."""
    made = Results({})
    for settle, theirs in ((100.0, 50.0), (10.0, 10.0), (90.0, 30.0)):
        made.add("schedule, 1 KB", "group 500", **{"rows/s": 7.4})
        made.add(SETTLE, row(500, 1), **{"rows/s": settle})
        made.add(SETTLE, row(500, 2), **{"rows/s": 2 * settle})
        made.add(SETTLE, row(1, 4), **{"rows/s": 1.0})
        if peers:
            made.beside_pgmq(100, 4, settle, theirs)
            made.beside_pgmq(100, 1, settle / 4, theirs)
            made.beside_pgmq(500, 4, settle, 2 * theirs)
            made.add(PGQUEUER, peer_row(1, 200, 2), **{"rows/s": theirs / 2})
            made.add(PGQUEUER, peer_row(1, 10, 5), **{"rows/s": theirs / 9})
            made.add(PGQUEUER, peer_row(2, 200, 1), **{"rows/s": 4 * theirs})
        made.add("wake-up", "quiet", **{"p50 ms": 1.0, "p99 ms": 2.345, "claim ms": 2.0})
        made.add("wake-up", "deferred backlog", **{"p50 ms": 1.0, "p99 ms": 2.0, "claim ms": 2.5})
    return made


def test_best_is_compared_with_best_and_equal_settings_with_equal_ones() -> None:
    line = last_line(book(peers=True).figures())
    assert line == (
        "schedule_rows_s=7 settle_rows_s=180 settle_vs_pgmq=1.00 settle_vs_pgmq_alike=2.00 settle_vs_pgmq_worst=0.50 "
        "drain_vs_pgqueuer=4.00 drain_vs_pgqueuer_2=1.00 wake_p50_ms=1.00 wake_p99_ms=2.35 backlog_ratio=1.25"
        + "".join(
            f" leaves_{name}_{n}=unmeasured" for name in ("results50_ms", "rows_s", "locks") for n in (3, 100, 500)
        )
    )


def test_the_cells_in_which_pgmq_is_ahead_are_named() -> None:
    assert book(peers=True).worst() == [
        "pgmq is ahead at batch 100, 1 process: 0.50",
        "pgmq is ahead at batch 500, 4 processes: 1.00",  # once in three rounds
        "lowest ratio: batch 100, 1 process: 0.50",
    ]
    assert book(peers=False).worst() == []


def test_an_unmeasured_figure_has_no_number() -> None:
    figures = book(peers=False).figures()
    assert figures["settle_vs_pgmq"] is None
    assert "settle_vs_pgmq_worst=unmeasured drain_vs_pgqueuer=unmeasured" in last_line(figures)


def test_figures_are_shown_with_minimum_median_and_maximum() -> None:
    [figures] = [table for table in book(peers=True).tables() if table.name == "figures"]
    assert figures.columns == ("least", "median", "most")
    assert ("settle_vs_pgmq_alike", "1.00", "2.00", "3.00") in figures.rows
    [cells] = [table for table in book(peers=True).tables() if table.name == SETTLE]
    assert cells.rows[0] == ("batch 500, 1 process", "90.00 (10.00 to 100)")


def test_rounds_of_other_machines_count_for_the_same_cells() -> None:
    ours, theirs = book(peers=True), book(peers=True)
    theirs.settings["machine"] = "another"
    ours.absorb(theirs.document(), "theirs.json")
    assert len(ours.by_round()["settle_vs_pgmq"]) == 6
    assert "machine=another" in ours.markdown()
    with pytest.raises(PillarboxError, match=r"less.json: the run measured other cells"):
        ours.absorb(book(peers=False).document(), "less.json")


async def test_no_rounds_and_no_earlier_run_is_one_line() -> None:
    status, _, complaints = await run("core", "--rounds", "0")
    assert (status, complaints) == (
        78,
        "bench-core: --rounds: 0 requires --with FILE\n",
    )


def test_a_page_is_written_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- written by `make bench-x ARGS=--write`: begin -->\nold\n<!-- end -->\nafter\n")
    write(page, "make bench-x", "new")
    assert page.read_text() == (
        "before\n<!-- written by `make bench-x ARGS=--write`: begin -->\nnew\n<!-- end -->\nafter\n"
    )
    with pytest.raises(PillarboxError, match="is missing"):
        write(page, "make bench-y", "new")


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("benchmarks", "bench-core"),
        ("benchmarks-flow", "bench-flow"),
        ("benchmarks-acceptance", "bench-smtpd"),
        ("benchmarks-http", "bench-http"),
    ],
)
def test_each_page_has_marks_for_its_run(page: str, command: str, tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(Path(f"docs/explanation/{page}.md").read_text())
    write(copy, f"make {command}", "the tables of a run")
    assert "\nthe tables of a run\n" in copy.read_text()


@pytest.mark.parametrize("size", [100, 1024, 51_200])
def test_bodies_have_their_size_and_complete_lines(size: int) -> None:
    made = content(size)
    assert len(made) == size
    assert made.endswith(b"\r\n")
    assert made != content(size), "PostgreSQL could compress repeated text"
