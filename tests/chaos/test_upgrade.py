"""test_upgrade — a rolling upgrade while mail flows: nothing is lost and nothing arrives twice

Owns: the cell of the rolling upgrade, and of the way back, as a test.
See: tests/chaos/upgrade.py; docs/how-to/operate/upgrade.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos import upgrade

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_this_version_runs_on_the_next_schema_and_beside_the_next_version(database: str, tmp_path: Path) -> None:
    figures = await upgrade.to_newer(database, tmp_path)
    assert figures.accepted > 0
    assert (figures.lost, figures.altered, figures.duplicated) == (0, 0, 0), figures
