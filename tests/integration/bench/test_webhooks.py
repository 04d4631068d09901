"""test-webhooks — the benchmark of webhooks measures what it claims

Owns: one tiny run of scripts/bench/webhooks.py as a program.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.benchmarks import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_a_tiny_run_brings_every_event_once(tmp_path: Path) -> None:
    status, said, complaints = await run(
        "webhooks", "--events", "1500", "--single", "100", "--var", str(tmp_path / "var")
    )
    assert status == 0, complaints
    line = r"webhook_events_s=(\d+) webhook_cpu_us=\d+ webhook_single_events_s=(\d+) webhook_single_cpu_us=\d+"
    found = re.fullmatch(line, said.splitlines()[-1])
    assert found is not None, said
    assert min(map(int, found.groups())) > 0
