"""test_bench_flow — the benchmark of the whole way measures what it says, and a peer that is missing is no number

Owns: one tiny run of scripts/bench_flow.py as a program, and proofs of its arithmetic.
Bugs: Postfix is measured only where it is installed and we are root, as in the benchmark itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import pytest

from scripts.bench_flow_report import DRAIN, FIGURES, LATENCY, OURS, Results, flow_table, last_line
from scripts.bench_smtpd_report import POSTFIX, named
from tests.fixtures.postgres import temporary_var

PEER = Path("/usr/sbin/postfix").exists() and os.geteuid() == 0


@pytest.mark.slow
async def test_a_tiny_run_measures_everything_and_its_ledgers_agree(tmp_path: Path, smtp_source: Path) -> None:
    written = tmp_path / "figures.json"
    with temporary_var() as var:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scripts.bench_flow", "--quick", "--rounds", "2"),
            *("--var", str(var / "bench"), "--json", str(written)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, complaints = (octets.decode() for octets in await program.communicate())
    assert program.returncode == 0, complaints
    ratio = r"\d+\.\d\d" if PEER else "unmeasured"
    assert re.fullmatch(
        rf"flow_vs_postfix_4k={ratio} flow_vs_postfix_100k=unmeasured deliver_msgs_s=\d+ "
        r"first_byte_p50_ms=\d+\.\d\d first_byte_p99_ms=\d+\.\d\d",
        said.splitlines()[-1],
    ), said
    assert ("Postfix: unmeasured; " in said) is not PEER
    assert "fsync=on" in said
    assert "synchronous_commit=on" in said
    found = json.loads(written.read_text())
    assert found["settings"]["workers"] == "2"
    rounds = {(cell["table"], cell["what"]): cell["rounds"] for cell in found["cells"]}
    for recipients in (1, 20):
        cell = rounds[flow_table(recipients), named(4096)]
        assert set(cell) == ({OURS, POSTFIX, "ratio"} if PEER else {OURS})
        assert min(cell[OURS]) > 0
    assert all(len(values) == 2 for cell in rounds.values() for values in cell.values())
    assert 0 < min(rounds[LATENCY, named(4096)]["p50"]) <= min(rounds[LATENCY, named(4096)]["p99"])


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
    assert [each.partition("=")[0] for each in line.split()] == list(FIGURES)


def test_without_postfix_no_ratio_is_a_number() -> None:
    found = results(peer=False)
    found.compare()
    assert [found.figures()[name] for name in FIGURES] == [None, None, 840.0, 5.0, 10.0]
