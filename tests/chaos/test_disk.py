"""test_disk — the disk under PostgreSQL is full: clients get 451 or 452, and no accepted mail is lost

Owns: the cells of the full disk as tests.
See: tests/chaos/disk.py; docs/explanation/durability.md, "When the disk is full".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos import disk
from tests.chaos.cells import SOON

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.small_disk import Part


def kept(outcome: disk.Outcome) -> None:
    """The checks for every way in which the disk fills up."""
    assert (outcome.figures.lost, outcome.figures.altered) == (0, 0), outcome
    assert outcome.figures.duplicated <= outcome.bound, outcome
    assert outcome.figures.refused > 0, outcome
    assert outcome.replies <= {"451", "452"}, outcome
    assert outcome.seconds <= SOON, outcome


@pytest.mark.slow
async def test_a_full_data_volume_is_451_until_space_is_freed(tmp_path: Path) -> None:
    outcome = await disk.full_data(tmp_path)
    kept(outcome)
    assert outcome.panics == 0, outcome


@pytest.mark.slow
async def test_a_full_wal_volume_stops_postgresql_and_loses_no_mail(tmp_path: Path) -> None:
    outcome = await disk.full_log(tmp_path)
    kept(outcome)
    assert outcome.panics > 0, outcome


@pytest.mark.slow
@pytest.mark.parametrize("part", ["data", "wal"])
async def test_smtpd_stops_before_the_disk_is_full_and_delivery_goes_on(tmp_path: Path, part: Part) -> None:
    outcome = await disk.stopped(tmp_path, part)
    kept(outcome)
    assert outcome.replies == {"452"}, outcome
    assert outcome.panics == 0, outcome
