"""test-export-once — closed days are exported once, grow with late rows, and never shrink"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from scripts.analytics import lake, manifest
from scripts.analytics.export import command as export
from scripts.analytics.export import compact, day, portion
from scripts.analytics.runner import Here, OnSpark
from scripts.analytics.source import portions
from tests.fixtures.database.lake import ask, exported, late, same, today

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def test_a_second_run_exports_nothing(history_database: str, tmp_path: Path) -> None:
    first = exported(history_database, tmp_path)
    again = exported(history_database, tmp_path)

    closed = ask(history_database, "SELECT count(*) FROM pillarbox.attempts WHERE ts < date_trunc('day', now(), 'UTC')")
    assert sum(made.rows for made in first.exported if made.table == "attempts") == closed
    assert (len(again.exported), again.refused) == (0, [])
    assert again.current == len(first.exported)
    same(history_database, tmp_path)


def test_today_is_not_exported(history_database: str, tmp_path: Path) -> None:
    assert today() not in {made.day for made in exported(history_database, tmp_path).exported}


def test_a_late_row_makes_a_new_version_of_its_day_only(history_database: str, exported_lake: Path) -> None:
    late(history_database)

    [made] = exported(history_database, exported_lake).exported

    assert (made.table, made.version) == ("attempts", 2)
    same(history_database, exported_lake)


def test_a_day_that_lost_rows_is_refused_and_the_lake_keeps_them(history_database: str, tmp_path: Path) -> None:
    before = sum(made.rows for made in exported(history_database, tmp_path).exported)
    with psycopg.connect(history_database, autocommit=True) as connection:
        connection.execute("DELETE FROM pillarbox.archive WHERE id = (SELECT min(id) FROM pillarbox.archive)")

    done = exported(history_database, tmp_path)

    [refused] = done.refused
    assert "the lake was not changed" in refused
    assert sum(each.rows for table in ("attempts", "archive") for each in manifest.every(tmp_path, table)) == before


def test_days_are_divided_by_class_of_destination(history_database: str, tmp_path: Path) -> None:
    exported(history_database, tmp_path, table={"d1.example": "big", "d2.example": "big"})

    folders = {path.parent.name for path in (tmp_path / "attempts").rglob("*.parquet")}
    assert folders == {"class=big", "class=other"}
    same(history_database, tmp_path)


def test_small_files_are_merged_with_the_same_rows(
    history_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portions, "PAGES", 8)
    monkeypatch.setattr(portions.cut, "__defaults__", (8,))
    exported(history_database, tmp_path)
    before = len(list((tmp_path / "attempts").rglob("*.parquet")))

    done = exported(history_database, tmp_path, compact=True)

    assert done.compacted > 0
    assert len(list((tmp_path / "attempts").rglob("*.parquet"))) < before
    same(history_database, tmp_path)


def test_a_damaged_file_is_not_compacted(exported_lake: Path) -> None:
    known = next(each for each in manifest.every(exported_lake, "attempts") if each.files)
    (exported_lake / known.files[0].path).write_bytes(b"PAR1")
    bundle = compact.Bundle(exported_lake, "attempts", known.files, exported_lake)

    with pytest.raises(manifest.LakeFault, match="is damaged"):
        compact.write_bundle(bundle)


def test_a_missing_file_is_reported_before_spark_reads(exported_lake: Path) -> None:
    found = lake.days(exported_lake, "attempts")
    gone = next(entry for each in found for entry in each.files)
    (exported_lake / gone.path).unlink()

    with pytest.raises(manifest.LakeFault, match="export the day again"):
        lake.files(exported_lake, found)


def test_oversized_and_undecodable_text_is_set_aside_and_counted(history_database: str, tmp_path: Path) -> None:
    late(history_database, domain="x" * 5000 + ".example")
    late(history_database, reply="y" * 70_000)

    done = exported(history_database, tmp_path)

    reasons = {reason: rows for made in done.exported for reason, rows in made.quarantined.items()}
    assert reasons == {"recipientdomain of more than 255 octets": 1, "reply_text of more than 65536 octets": 1}
    same(history_database, tmp_path)


def test_a_day_dropped_while_it_is_read_is_refused_not_empty(
    history_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = today()

    def drop_first(piece: portion.Piece) -> portion.Written:
        nonlocal victim
        if victim == today():
            victim = piece.portion.day
            with psycopg.connect(history_database, autocommit=True) as connection:
                connection.execute(f"DROP TABLE pillarbox.attempts_{victim:%Y%m%d}".encode())
        return portion.write_portion(piece)

    monkeypatch.setattr(day, "write_portion", drop_first)
    done = exported(history_database, tmp_path)

    [refused] = done.refused
    assert f"{victim} was dropped during the read" in refused
    assert manifest.load(tmp_path, "attempts", victim) is None


def test_an_unwritable_lake_is_one_line(history_database: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(manifest.LakeFault, match=r"--lake: .* cannot be written"):
        exported(history_database, file)


def test_spark_exports_the_same_and_reads_it(spark: SparkSession, history_database: str, tmp_path: Path) -> None:
    export.export(history_database, tmp_path, OnSpark(spark))

    same(history_database, tmp_path)
    read = lake.frame(spark, tmp_path, "attempts", ["outcome", "tls"]).count()
    assert read == sum(each.rows for each in manifest.every(tmp_path, "attempts"))


def test_an_error_in_a_spark_worker_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    entry = manifest.LakeFile("attempts/nothing.parquet", 1, 1, "")
    bundle = compact.Bundle(tmp_path, "attempts", (entry,), tmp_path)

    with pytest.raises(manifest.LakeFault, match=r"nothing\.parquet: the file is missing") as raised:
        OnSpark(spark).run(compact.write_bundle, [bundle], lambda _: None)
    assert "\n" not in str(raised.value)


def test_a_second_export_at_the_same_time_is_refused(history_database: str, tmp_path: Path) -> None:
    day.writable(tmp_path)
    with export.alone(tmp_path), pytest.raises(manifest.LakeFault, match="another export"):
        export.export(history_database, tmp_path, Here())
