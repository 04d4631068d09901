"""test_disk — the disk under PostgreSQL is full: clients are asked to wait, and nothing accepted is lost

Owns: the cells of the full disk as tests.
See: tests/chaos/disk.py; docs/explanation/durability.md, "When the disk is full".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos import disk

if TYPE_CHECKING:
    from pathlib import Path

SOON = 5.0  # seconds
BUSY = 10.0  # seconds more on a machine that others use too


def kept(outcome: disk.Outcome) -> None:
    """What holds however the disk filled up."""
    assert (outcome.figures.lost, outcome.figures.altered) == (0, 0), outcome
    assert outcome.figures.duplicated <= outcome.bound, outcome
    assert outcome.figures.refused > 0, outcome
    assert outcome.replies <= {"451", "452"}, outcome
    assert outcome.seconds < SOON + BUSY, outcome


@pytest.mark.slow
async def test_tables_that_cannot_grow_cost_451_until_there_is_room(tmp_path: Path) -> None:
    outcome = await disk.full_data(tmp_path)
    kept(outcome)
    assert outcome.panics == 0, outcome


@pytest.mark.slow
async def test_a_log_that_cannot_grow_ends_postgresql_and_no_mail(tmp_path: Path) -> None:
    outcome = await disk.full_log(tmp_path)
    kept(outcome)
    assert outcome.panics > 0, outcome
