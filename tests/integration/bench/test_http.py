"""test_http — the benchmark of sending by HTTP measures what it claims

Owns: one tiny run of scripts/bench/http/__main__.py as a program, and proofs of its arithmetic.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scripts.bench.book import last_line
from scripts.bench.http.report import BASE64, BATCH, COST, MEMORY, PARTS, PIPELINED, RATE, SINGLE, SMTP, Results
from tests.fixtures.daemons.benchmarks import tiny

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_a_tiny_run_measures_everything_and_its_ledgers_agree(tmp_path: Path) -> None:
    ran = await tiny("http", tmp_path)
    ratio = r"\d+\.\d\d"
    line = rf"http_vs_smtp={ratio} batch_vs_smtp={ratio} http_p99_ms={ratio} webhook_events_s=\d+"
    assert re.fullmatch(line, ran.last_line), ran.said
    for way in (SMTP, PIPELINED, SINGLE, BASE64, BATCH, PARTS):
        assert len(ran.rounds[COST, way]["daemon"]) == 2
        assert min(ran.rounds[COST, way]["daemon"]) > 0
        assert min(ran.rounds[RATE, way]["messages/s"]) > 0
    [total] = ran.rounds[MEMORY, "20 idle connections"]["MiB"]
    assert total > 0


def test_a_ratio_is_the_processor_time_of_smtp_by_that_of_http_in_the_same_round() -> None:
    found = Results({})
    for smtp, single, batch in ((400.0, 800.0, 200.0), (300.0, 400.0, 300.0), (400.0, 400.0, 100.0)):
        for way, cost in ((SMTP, smtp), (SINGLE, single), (BATCH, batch)):
            found.add(COST, way, daemon=cost)
    assert last_line(found.figures()) == (
        "http_vs_smtp=0.75 batch_vs_smtp=2.00 http_p99_ms=unmeasured webhook_events_s=unmeasured"
    )
