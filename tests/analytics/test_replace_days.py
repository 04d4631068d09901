"""test-replace-days — a day of the lake is replaced however PyIceberg's threads take turns"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import visitors

from scripts.analytics.lake import catalog, days, files
from scripts.analytics.source.columns import ATTEMPTS
from tests.fixtures.analytics.lake import in_lake

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_files_of_a_day_are_found_however_threads_take_turns(
    exported_lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of PyIceberg share one evaluator, which keeps the bounds of one day's manifest."""
    visit = visitors.visit

    def slowly(expression: Any, visitor: Any) -> Any:
        if isinstance(visitor, visitors._ManifestEvalVisitor):
            time.sleep(0.02)  # between keeping a manifest's bounds and looking at them: another thread's turn
        return visit(expression, visitor)

    table = catalog.opened(str(exported_lake)).needed("attempts")
    before = in_lake(exported_lake, "attempts")
    monkeypatch.setattr(visitors, "visit", slowly)
    for known in days.every("attempts", table):
        found = files.of_days(table, ATTEMPTS.instant, known.day, known.day)
        again = replace(known, version=known.version + 1)
        days.replace(table, again, ATTEMPTS.instant, [file.file_path for file in found], old=found)
        table.refresh()
    monkeypatch.undo()
    assert in_lake(exported_lake, "attempts") == before
