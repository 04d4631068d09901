"""test_flow — the benchmark from acceptance to delivery measures what it claims; a missing peer is unmeasured

Owns: one tiny run of scripts/bench/flow/__main__.py as a program, and proofs of its arithmetic.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scripts.bench.book import POSTFIX, last_line, named
from scripts.bench.core.server import fill
from scripts.bench.flow.ours import Ours
from scripts.bench.flow.report import DRAIN, LATENCY, OURS, SWEEP, Results, flow_table, sweep_row
from scripts.bench.smtpd.postfix import Log
from scripts.daemons import DaemonProcess
from shared.postgres.database import connect, fetch
from tests.fixtures.daemons.benchmarks import POSTFIX_IS_HERE, tiny

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_a_tiny_run_measures_everything_and_its_ledgers_agree(tmp_path: Path, smtp_source: Path) -> None:
    ran = await tiny("flow", tmp_path)
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
        assert min(ran.rounds[SWEEP, sweep_row(4096, recipients)][OURS]) > 0
    assert all(len(values) == 2 for cell in ran.rounds.values() for values in cell.values())
    latency = ran.rounds[LATENCY, named(4096)]
    assert 0 < min(latency["p50"]) <= min(latency["p99"])


def results(*, peer: bool) -> Results:
    """Three rounds, the second of them slow for both."""
    made = Results({})
    for ours, theirs, p50 in ((900.0, 300.0, 5.0), (200.0, 100.0, 9.0), (840.0, 420.0, 4.0)):
        for size in (4096, 102_400):
            made.compared(flow_table(1), named(size), pillarbox=ours, **({POSTFIX: theirs} if peer else {}))
        made.add(DRAIN, named(4096), pillarbox=ours)
        made.add(LATENCY, named(4096), p50=p50, p99=2 * p50)
    return made


def test_ratios_compare_figures_of_the_same_round() -> None:
    line = last_line(results(peer=True).figures())
    assert line == (
        "flow_vs_postfix_4k=2.00 flow_vs_postfix_100k=2.00 deliver_msgs_s=840 first_byte_p50_ms=5.00 "
        "first_byte_p99_ms=10.00"
    )


def test_without_postfix_ratios_are_unmeasured() -> None:
    found = results(peer=False)
    assert list(found.figures().values()) == [None, None, 840.0, 5.0, 10.0]


def test_the_cells_in_which_postfix_is_ahead_are_named() -> None:
    found = results(peer=True)
    assert found.worst()[0] == "Postfix is ahead nowhere"
    for ours in (90.0, 80.0, 70.0):
        found.compared(flow_table(20), named(1024), pillarbox=ours, Postfix=100.0)
    table = "messages/s end to end, 20 recipients each, 1 KB: 0.80 (0.70 to 0.90)"
    assert found.worst() == [f"Postfix is ahead at: {table}, in 3 of 3 rounds", f"lowest ratio: {table}"]


def test_a_cell_in_which_postfix_was_ahead_once_is_named() -> None:
    found = results(peer=True)
    for ours in (130.0, 120.0, 70.0):
        found.compared(flow_table(20), named(1024), pillarbox=ours, Postfix=100.0)
    table = "messages/s end to end, 20 recipients each, 1 KB: 1.20 (0.70 to 1.30)"
    assert found.worst() == [f"Postfix is ahead at: {table}, in 1 of 3 rounds", f"lowest ratio: {table}"]


def test_only_new_complete_lines_of_a_log_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"A: to=<x>, status=sent (250 ok)\nA: remo")
    log = Log(path)
    log.look()
    assert (log.sent, log.removed) == (1, 0)
    with path.open("r+b") as written:
        written.write(b"x" * 10)  # a line is read once
        written.seek(0, 2)
        written.write(b"ved\nB: status=deferred\nB: to=<y>, status=sent (250 ok)\n")
    log.look()
    log.look()
    assert (log.sent, log.removed) == (2, 1)


@pytest.mark.slow
async def test_our_time_ends_when_the_last_body_is_deleted(database: str) -> None:
    connection = await connect(database, "test")
    try:
        await fill(connection, 20, 1024)
        await fetch(connection, "bench_empty")  # every recipient is finished
        assert not (await fetch(connection, "bench_swept"))[0].swept
        await Ours(DaemonProcess("smtpd", ()), [], connection, 0).sweep()
        assert (await fetch(connection, "bench_swept"))[0].swept
    finally:
        await connection.close()
