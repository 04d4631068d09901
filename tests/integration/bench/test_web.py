"""test_web — the benchmark of the console measures what it claims

Owns: one tiny run of scripts/bench/web.py as a program.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.benchmarks import run
from tests.fixtures.peers.web.chromium import chromium

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_a_tiny_run_paints_pages_and_delivers_mail_beside_viewers(tmp_path: Path) -> None:
    chromium()
    tiny = ("--recipients", "2000", "--loads", "1", "--viewers", "3", "--seconds", "1")
    status, said, complaints = await run("web", *tiny, "--var", str(tmp_path / "var"))
    assert status == 0, complaints
    line = r"first_paint_ms=(\d+) filter_ms=(\d+) p99_change_pct=-?[\d.]+ quiet_pct=[\d.]+ p99_ms=(\d+) recipients=2000"
    found = re.fullmatch(line, said.splitlines()[-1])
    assert found is not None, said
    assert min(map(int, found.groups())) > 0
