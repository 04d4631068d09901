"""test-damaged-lake — damage to a lake is one line, and a day whose files were lost is exported again"""

from __future__ import annotations

import os
import sqlite3
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from operate.erase import Person
from scripts import cli
from scripts.analytics.erase import lake as erase
from scripts.analytics.lake import catalog
from scripts.analytics.lake.faults import LakeFault
from tests.fixtures.analytics.lake import exported, files, known, late, same, today

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

type Damage = Callable[[Path], object]


def test_days_whose_files_were_lost_or_damaged_are_exported_again(history_database: str, exported_lake: Path) -> None:
    before = {each.day: each for each in known(exported_lake, "attempts")}
    lost, damaged, *_ = files(exported_lake, "attempts")
    lost.unlink()
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    [rollup, *_] = files(exported_lake, "rollups")
    rollup.unlink()
    assert exported(history_database, exported_lake).exported == []

    done = exported(history_database, exported_lake, again=True, since=today() - timedelta(days=90))

    assert (done.current, done.refused) == (0, [])
    same(history_database, exported_lake)
    for each in known(exported_lake, "attempts"):
        assert (each.version, each.fingerprint) == (before[each.day].version + 1, before[each.day].fingerprint)
    assert not {lost, damaged, rollup} & {*files(exported_lake, "attempts"), *files(exported_lake, "rollups")}


def test_only_the_days_asked_for_are_exported_again(history_database: str, exported_lake: Path) -> None:
    day = today() - timedelta(days=2)
    done = exported(history_database, exported_lake, again=True, since=day, until=day)
    assert {each.day for each in done.exported} == {day}
    same(history_database, exported_lake)


@pytest.mark.parametrize("table", ["attempts", "archive", "audit"])
def test_a_day_of_which_postgresql_lacks_rows_is_not_exported_again(
    history_database: str, tmp_path: Path, table: str
) -> None:
    with psycopg.connect(history_database, autocommit=True) as session:
        session.execute(
            "INSERT INTO pillarbox.audit (ts, verb, condition, wanted, finished)"
            " SELECT now() - interval '1 day', 'hold', 'x', 3, now() FROM generate_series(1, 2)"
        )
        exported(history_database, tmp_path)
        before = known(tmp_path, table)
        session.execute(
            sql.SQL("DELETE FROM pillarbox.{0} WHERE id = (SELECT min(id) FROM pillarbox.{0})").format(
                sql.Identifier(table)
            )
        )

    done = exported(history_database, tmp_path, again=True, since=today() - timedelta(days=90))

    [refused] = done.refused
    assert refused.startswith(f"{table} ")
    assert refused.endswith("the lake was not changed")
    kept = [each for each in known(tmp_path, table) if str(each.day) in refused]
    assert kept == [each for each in before if str(each.day) in refused]


def test_a_day_that_postgresql_dropped_is_not_exported_again(history_database: str, exported_lake: Path) -> None:
    day = today() - timedelta(days=3)
    before = files(exported_lake, "attempts")
    with psycopg.connect(history_database, autocommit=True) as session:
        session.execute(f"DROP TABLE pillarbox.attempts_{day:%Y%m%d}".encode())

    done = exported(history_database, exported_lake, again=True, since=day, until=day)

    assert done.refused == [f"attempts {day}: PostgreSQL has the day no more; the lake was not changed"]
    assert [each.table for each in done.exported] == ["archive"]
    assert files(exported_lake, "attempts") == before


def test_a_late_row_is_exported_with_the_rest(history_database: str, exported_lake: Path) -> None:
    late(history_database)
    exported(history_database, exported_lake, again=True, since=today() - timedelta(days=1))
    same(history_database, exported_lake)


def test_exporting_again_needs_the_first_day(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["analytics", "export", "--again"]) != 0
    said = "pillarbox: --again: --since is missing; allowed: --again --since DAY, and --until DAY (yesterday)\n"
    assert capsys.readouterr().err == said


def _each(pattern: str, change: Callable[[Path], object]) -> Damage:
    """Change each file of the archive's metadata with such a name."""

    def damage(lake: Path) -> None:
        found = sorted((lake / "archive" / "metadata").glob(pattern))
        assert found
        for file in found:
            change(file)

    return damage


def _written(octets: bytes, file: Path) -> None:
    file.write_bytes(octets)


def _halved(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _replaced(old: str, new: str, file: Path) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


_VERSION = '"pillarbox.schema-version":"'


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda lake: (lake / "catalog.db").write_bytes(b"x" * 5000), id="catalog-garbage"),
        pytest.param(lambda lake: os.truncate(lake / "catalog.db", 4096), id="catalog-cut"),
        pytest.param(_each("*.metadata.json", os.remove), id="metadata-gone"),
        pytest.param(_each("*.metadata.json", partial(_written, b"")), id="metadata-empty"),
        pytest.param(_each("*.metadata.json", partial(_written, b"{}")), id="metadata-other"),
        pytest.param(_each("*.metadata.json", partial(_replaced, _VERSION, f"{_VERSION}x")), id="metadata-version"),
        pytest.param(_each("*.avro", os.remove), id="manifests-gone"),
        pytest.param(_each("*.avro", partial(_written, b"")), id="manifests-empty"),
        pytest.param(_each("*.avro", partial(_written, b"garbage")), id="manifests-garbage"),
        pytest.param(_each("*.avro", _halved), id="manifests-cut"),
    ],
)
def test_damaged_metadata_is_one_line(exported_lake: Path, capsys: pytest.CaptureFixture[str], damage: Damage) -> None:
    damage(exported_lake)
    assert cli.main(["analytics", "search", "--lake", str(exported_lake), "size>1"]) == 1
    said = capsys.readouterr().err
    assert (said.count("\n"), "cannot be read: " in said) == (1, True), said
    with pytest.raises(LakeFault, match="cannot be read: "):
        erase.find(catalog.opened(str(exported_lake)), Person.of("joe@example.com"))


def test_a_lock_that_cannot_be_had_is_one_line(exported_lake: Path) -> None:
    (exported_lake / "lock").unlink()
    (exported_lake / "lock").mkdir()
    with (
        pytest.raises(LakeFault, match="lock: cannot be locked: Is a directory"),
        catalog.opened(str(exported_lake)).alone(),
    ):
        pass


def test_the_catalog_of_another_program_is_no_lake(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "catalog.db") as other:
        other.execute("CREATE TABLE iceberg_tables (x)")
    other.close()
    with pytest.raises(LakeFault, match="cannot be read: "):
        catalog.opened(str(tmp_path)).table("archive")
