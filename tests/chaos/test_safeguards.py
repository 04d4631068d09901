"""test_safeguards — removing any one safeguard makes a cell of the matrix fail

Owns: the proof that the matrix works: each mutant fails its cell by losing, duplicating or delaying mail; an
    unchanged copy does not. The two fastest always run, all of them by `make chaos-mutants` (PILLARBOX_CHAOS=all).
See: tests/chaos/mutants.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.chaos.cells import BY_NAME
from tests.chaos.mutants import MUTANTS, Mutant, changed, mutated
from tests.chaos.run_cell import run_cell

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.killable import Killable

_ALL = os.environ.get("PILLARBOX_CHAOS") == "all"
_OTHERS = pytest.mark.skipif(not _ALL, reason="make chaos-mutants runs it")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.safeguard.replace(" ", "-"))
def test_the_safeguard_to_remove_exists(mutant: Mutant) -> None:
    assert changed(mutant)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    [pytest.param(m, id=m.safeguard.replace(" ", "-"), marks=() if m.short else _OTHERS) for m in MUTANTS],
)
async def test_without_the_safeguard_mail_is_lost_duplicated_or_late(
    mutant: Mutant, chaos_server: Killable, tmp_path: Path
) -> None:
    environment = mutated(mutant, tmp_path / "copy")
    outcome = await run_cell(BY_NAME[mutant.cell], chaos_server, tmp_path / "cell", environment=environment)
    f = outcome.figures
    if mutant.breaks == "lost":
        assert f.lost > 0, outcome
    elif mutant.breaks == "queued":
        assert outcome.left > 0, outcome
    elif mutant.breaks == "late":
        assert outcome.recovery > outcome.cell.limit, outcome
    else:
        assert f.duplicated > outcome.bound, outcome
    assert outcome.broken()


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(name, marks=() if any(m.short for m in MUTANTS if m.cell == name) else _OTHERS)
        for name in dict.fromkeys(m.cell for m in MUTANTS)
    ],
)
async def test_with_all_safeguards_no_mail_is_lost(cell: str, chaos_server: Killable, tmp_path: Path) -> None:
    environment = mutated(None, tmp_path / "copy")
    outcome = await run_cell(BY_NAME[cell], chaos_server, tmp_path / "cell", environment=environment)
    assert outcome.broken() == []
