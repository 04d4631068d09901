"""test_short_form — one cell of the crash matrix for each kind of fault: no accepted mail is lost

Owns: the cells of `make chaos ARGS=--short` as tests; the form of the table.
See: tests/chaos/cells.py; docs/explanation/crash-table.md for all cells.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shared.failure_points import POINTS, parse
from tests.chaos import report
from tests.chaos.cells import BY_NAME, CELLS, Cell
from tests.chaos.run_cell import run_cell, strike_of

if TYPE_CHECKING:
    from tests.fixtures.servers.killable import Killable


@pytest.mark.slow
@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS if cell.short])
async def test_accepted_mail_is_not_lost(cell: Cell, chaos_server: Killable, tmp_path: Path) -> None:
    outcome = await run_cell(cell, chaos_server, tmp_path / "cell")
    print(report.row(outcome))  # noqa: T201 - shown when it fails
    assert outcome.broken() == []
    assert outcome.figures.accepted > 0


def test_every_cell_has_a_unique_name_and_a_strike() -> None:
    assert len(BY_NAME) == len(CELLS)
    assert all(callable(strike_of(cell)) for cell in CELLS)


def test_every_failure_point_of_the_daemons_has_a_cell() -> None:
    used = {parse(cell.point).point for cell in CELLS if cell.point}
    elsewhere = {"partitions.step", "migrate.before_commit"}  # strikes of commands, which set them themselves
    assert used | elsewhere == set(POINTS)


def test_the_page_has_a_row_for_every_cell() -> None:
    text = Path(report.PAGE).read_text(encoding="utf-8")
    absent = [name for name in BY_NAME if f"--only {name}" not in text]
    assert absent == []
