"""test_accounts — the benchmark of the collector measures every cell and prints its figures

Owns: one short run of scripts/bench/accounts/__main__.py as a program.
"""

from __future__ import annotations

import asyncio
import re
import sys

import pytest

from tests.fixtures.daemons.system import ROOT
from tests.fixtures.servers.postgres import temporary_var


@pytest.mark.slow
async def test_a_short_run_prints_every_figure() -> None:
    with temporary_var() as var:
        words = ("--tokens", "60", "--rounds", "1", "--batches", "10", "--sign-ups", "3", "--var", str(var / "bench"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scripts.bench.accounts", *words), cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(120):
            said, _ = await process.communicate()
    assert process.returncode == 0
    cell, figures = said.decode().splitlines()
    assert re.fullmatch(
        r"batch=10 bare_tokens_s=[1-9]\d* csv_tokens_s=[1-9]\d* queue_tokens_s=[1-9]\d* csv_vs_bare=\d+\.\d\d", cell
    )
    assert re.fullmatch(
        r"collect_vs_bare=\d+\.\d\d commit_to_queued_p50_ms=\d+\.\d\d commit_to_queued_most_ms=\d+\.\d\d", figures
    )
