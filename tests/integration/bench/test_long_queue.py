"""test_long_queue — the benchmark of a long queue measures what it claims

Owns: one tiny run of scripts/bench/long_queue.py as a program.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.benchmarks import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_a_tiny_run_delivers_mail_and_runs_each_command(tmp_path: Path) -> None:
    tiny = ("--recipients", "5000", "--seconds", "1", "--rate", "20")
    status, said, complaints = await run("long_queue", *tiny, "--var", str(tmp_path / "var"))
    assert status == 0, complaints
    line = r"p99_ratio=([\d.]+) postgres_cpu_ratio=([\d.]+) slowest_command_s=([\d.]+) recipients=5000"
    found = re.fullmatch(line, said.splitlines()[-1])
    assert found is not None, said
    assert min(map(float, found.groups())) > 0
    assert "queue delete --yes jobid=news-1" in complaints
