"""test_smtpd — the benchmark of acceptance measures what it claims; a missing peer is unmeasured

Owns: one tiny run of scripts/bench/smtpd/__main__.py as a program, and proofs of its arithmetic.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING

import pytest

from scripts.bench.book import POSTFIX, last_line, named
from scripts.bench.smtpd.cpu import below, spent
from scripts.bench.smtpd.report import OURS, Results, accept_table, reply_table, row
from tests.fixtures.daemons.benchmarks import POSTFIX_IS_HERE, tiny

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_a_tiny_run_measures_everything_and_its_ledgers_agree(tmp_path: Path, smtp_source: Path) -> None:
    ran = await tiny("smtpd", tmp_path, "--processes", "2")
    ratio = r"\d+\.\d\d" if POSTFIX_IS_HERE else "unmeasured"
    assert re.fullmatch(
        rf"accept_vs_postfix_4k={ratio} accept_vs_postfix_100k={ratio} accept_vs_postfix_1m=unmeasured "
        r"reply_p99_ms=\d+\.\d\d",
        ran.last_line,
    ), ran.said
    assert ("Postfix: unmeasured; " in ran.said) is not POSTFIX_IS_HERE
    assert ran.document["settings"]["processes"] == "2"
    for sessions in (1, 20):
        for reuse in (True, False):
            cell = ran.rounds[accept_table(4096), row(sessions, reuse=reuse)]
            assert len(cell[OURS]) == 2
            assert min(cell[OURS]) > 0
    assert all(len(values) == 2 for cell in list(ran.rounds.values())[:-2] for values in cell.values())
    assert ran.rounds["memory of smtpd", "2 messages of 1 MB at once"]["accepted"] == [2]


def results(*, peer: bool) -> Results:
    """Three rounds, the second of them slow for both."""
    made = Results({})
    for ours, theirs, p99 in ((3000.0, 1000.0, 20.0), (300.0, 200.0, 90.0), (2800.0, 1400.0, 30.0)):
        for size in (4096, 102_400):
            made.compared(accept_table(size), row(20, reuse=True), smtpd=ours, **({POSTFIX: theirs} if peer else {}))
        made.add(reply_table(4096), row(20, reuse=True), **{"smtpd p99": p99})
    return made


def test_ratios_compare_figures_of_the_same_round() -> None:
    line = last_line(results(peer=True).figures())
    assert line == (
        "accept_vs_postfix_4k=2.00 accept_vs_postfix_100k=2.00 accept_vs_postfix_1m=unmeasured reply_p99_ms=30.00"
    )


def test_without_postfix_ratios_are_unmeasured() -> None:
    found = results(peer=False)
    assert list(found.figures().values()) == [None, None, None, 30.0]
    assert all("ratio" not in cell.values for cell in found.cells.values())


def test_each_ratio_is_in_the_row_of_its_cell() -> None:
    found = results(peer=True)
    assert found.cells[accept_table(4096), row(20, reuse=True)].values["ratio"] == [3.0, 1.5, 2.0]
    assert POSTFIX in found.cells[accept_table(4096), row(20, reuse=True)].values


@pytest.mark.parametrize(("octets", "name"), [(1024, "1 KB"), (102_400, "100 KB"), (1_048_576, "1 MB")])
def test_sizes_have_names(octets: int, name: str) -> None:
    assert named(octets) == name


async def test_processor_time_counts_children_and_those_that_have_ended() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print('done', flush=True); "
        "sys.stdin.read()"
    )
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", parent), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert program.stdin
    assert program.stdout
    await program.stdout.readline()
    assert below(program.pid) == [program.pid]
    assert spent(program.pid) >= 0.3
    program.stdin.close()
    await program.wait()
    assert spent(program.pid) == 0
