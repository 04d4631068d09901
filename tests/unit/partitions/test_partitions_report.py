"""test_partitions_report — partition weights are read only from a valid report"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from operate.partitions.balance import read_report
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from pathlib import Path


def _written(folder: Path, rows: object) -> Path:
    file = folder / "report.json"
    sections = [{"key": "steps", "rows": []}, {"key": "weights", "rows": rows}]
    file.write_text(json.dumps({"sections": sections}), encoding="utf-8")
    return file


def test_the_seconds_of_each_id_are_its_weight(tmp_path: Path) -> None:
    rows = [{"partid": "1", "seconds": 2.5}, {"partid": "2", "seconds": 1}, {"partid": "(unknown)", "seconds": 9}]
    assert read_report(_written(tmp_path, rows)) == {"1": 2.5, "2": 1.0}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "weighs no partition id"),
        ([{"partid": "1"}], "not a report"),
        ([{"partid": None, "seconds": 1}], "not a report"),
        ([{"partid": "1", "seconds": -1}], "allowed: a number from 0"),
        ([{"partid": "1", "seconds": float("nan")}], "allowed: a number from 0"),
        ([{"partid": "a b", "seconds": 1}], "a b"),
    ],
)
def test_an_invalid_report_is_refused(tmp_path: Path, rows: object, said: str) -> None:
    with pytest.raises(PillarboxError, match=said):
        read_report(_written(tmp_path, rows))


def test_a_missing_file_or_invalid_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PillarboxError, match="No such file"):
        read_report(tmp_path / "none.json")
    (tmp_path / "bad.json").write_bytes(b"\xff{")
    with pytest.raises(PillarboxError, match="not a report"):
        read_report(tmp_path / "bad.json")
