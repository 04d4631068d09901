"""test_enqueue_bench — the benchmark of mail queued by SQL measures every figure of its last line

Owns: one tiny run of scripts/bench/enqueue.py as a program.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.fixtures.daemons.benchmarks import run
from tests.fixtures.servers.postgres import temporary_var

if TYPE_CHECKING:
    from pathlib import Path

FIGURES: Final = re.compile(
    r"(enqueue_batch_rows_s_(50|500)=\d+ enqueue_batch_keys_rows_s_\2=\d+ spool_rows_s_\2=\d+ ){2}"
    r"enqueue_rows_s=\d+( batch_vs_spool_(50|500)=\d+\.\d\d){2}"
)


@pytest.mark.slow
async def test_a_tiny_run_measures_everything(tmp_path: Path) -> None:
    with temporary_var() as var:
        options = ("--rounds", "1", "--messages", "200", "--sessions", "2", "--var", str(var / "bench"))
        status, said, complaints = await run("enqueue", *options)
    assert status == 0, complaints
    settings, figures = said.splitlines()
    assert re.search(r"\bsessions=2 .*\bfsync=on\b.*\bsynchronous_commit=on\b", settings)
    assert FIGURES.fullmatch(figures), figures
    assert " 0 " not in f" {figures.replace('=', ' ')} "
