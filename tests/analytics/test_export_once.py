"""test-export-once — closed days are exported once, grow with late rows, and never shrink"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from scripts.analytics import workers
from scripts.analytics.export import command as export
from scripts.analytics.export import day, portion
from scripts.analytics.lake import catalog, days, storage
from scripts.analytics.lake import files as lake_files
from scripts.analytics.lake.catalog import VERSION
from scripts.analytics.lake.faults import LakeFault
from scripts.analytics.source import portions
from scripts.analytics.source.columns import ATTEMPTS
from scripts.analytics.workers import Here
from tests.fixtures.analytics.lake import ask, damage, exported, files, in_lake, known, late, same, today

if TYPE_CHECKING:
    from pathlib import Path

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
    assert sum(each.rows for table in ("attempts", "archive") for each in known(tmp_path, table)) == before


def test_a_day_is_replaced_in_one_commit_that_carries_the_sums_of_postgresql(
    history_database: str, exported_lake: Path
) -> None:
    before = catalog.opened(str(exported_lake)).needed("attempts")
    late(history_database)

    [made] = exported(history_database, exported_lake).exported

    table = catalog.opened(str(exported_lake)).needed("attempts")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert len(table.metadata.snapshots) == len(before.metadata.snapshots) + 1
    said = {key.removeprefix("pillarbox."): value for key, value in snapshot.summary.additional_properties.items()}
    now = day.sums(history_database, ATTEMPTS, made.day)
    assert (said["day"], said["rows"], said["octets"]) == (str(made.day), str(now.rows), str(now.octets))


def test_small_files_are_merged_with_the_same_rows(
    history_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portions, "PAGES", 8)
    monkeypatch.setattr(portions.cut, "__defaults__", (8,))
    exported(history_database, tmp_path)
    before = len(files(tmp_path, "attempts"))

    done = exported(history_database, tmp_path, compact=True)

    assert done.compacted > 0
    assert len(files(tmp_path, "attempts")) < before
    same(history_database, tmp_path)


def test_a_damaged_file_is_not_merged(history_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions.cut, "__defaults__", (8,))
    exported(history_database, tmp_path)
    damaged = damage(tmp_path, "attempts")

    with pytest.raises(LakeFault, match="is damaged or missing"):
        exported(history_database, tmp_path, compact=True)
    assert damaged in files(tmp_path, "attempts")


def test_a_missing_file_is_reported_before_anything_is_read(exported_lake: Path) -> None:
    table = catalog.opened(str(exported_lake)).needed("attempts")
    found = lake_files.of_days(table, "ts")
    files(exported_lake, "attempts")[0].unlink()

    with pytest.raises(LakeFault, match="export the day again"):
        lake_files.whole(table, found)


def test_a_lake_with_delete_files_is_refused_where_parquet_is_read(
    exported_lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No library here writes delete files, so a scan says what it would say of another engine's."""
    table = catalog.opened(str(exported_lake)).needed("attempts")
    scan = type(table.scan())
    planned = scan.plan_files

    def with_deletes(self: Any) -> Any:
        tasks = list(planned(self))
        tasks[0].delete_files.add(tasks[0].file)
        return tasks

    monkeypatch.setattr(scan, "plan_files", with_deletes)
    with pytest.raises(LakeFault, match="rows of it were deleted by delete files"):
        lake_files.of_days(table, "ts")


def test_a_lake_of_an_older_version_gets_the_new_columns(history_database: str, exported_lake: Path) -> None:
    table = catalog.opened(str(exported_lake)).needed("attempts")
    with table.transaction() as change:
        with change.update_schema() as schema:
            schema.delete_column("tls")
        change.set_properties({VERSION: "0"})
    late(history_database)

    [made] = exported(history_database, exported_lake).exported

    rows = catalog.opened(str(exported_lake)).needed("attempts").scan(row_filter=days.of(made.day, "ts")).to_arrow()
    assert rows.num_rows == made.rows
    assert 0 < rows["tls"].null_count < rows.num_rows


def test_a_lake_of_a_newer_version_is_refused(history_database: str, exported_lake: Path) -> None:
    table = catalog.opened(str(exported_lake)).needed("attempts")
    with table.transaction() as change:
        change.set_properties({VERSION: "99"})
    with pytest.raises(LakeFault, match="schema version 99 is not supported"):
        exported(history_database, exported_lake)


def test_a_commit_is_refused_if_another_program_changed_the_lake(exported_lake: Path) -> None:
    table = catalog.opened(str(exported_lake)).needed("attempts")
    first = next(each for each in known(exported_lake, "attempts") if each.rows)
    other = catalog.opened(str(exported_lake)).needed("attempts")
    other.delete(f"id = {in_lake(exported_lake, 'attempts')['id'][0]}")

    with pytest.raises(LakeFault, match="another program changed the lake; run it again"):
        days.replace(table, first, "ts", [])


def test_commands_are_exported_and_those_that_retention_deletes_stay(history_database: str, tmp_path: Path) -> None:
    midnight = today() - timedelta(days=1)
    with psycopg.connect(history_database, autocommit=True) as session:
        for finished in (None, midnight):
            session.execute(
                "INSERT INTO pillarbox.audit (ts, verb, condition, wanted, finished) VALUES (%s, 'hold', 'x', 3, %s)",
                (midnight, finished),
            )
        exported(history_database, tmp_path)
        assert [each.rows for each in known(tmp_path, "audit")] == [2]
        session.execute("UPDATE pillarbox.audit SET finished = now(), done = 3 WHERE finished IS NULL")
        assert [made.table for made in exported(history_database, tmp_path).exported] == ["audit"]
        session.execute("DELETE FROM pillarbox.audit WHERE id = (SELECT min(id) FROM pillarbox.audit)")
        done = exported(history_database, tmp_path)

    assert (done.exported, done.refused) == ([], [])
    rows = catalog.opened(str(tmp_path)).needed("audit").scan().to_arrow()
    assert (rows.num_rows, rows["finished"].null_count) == (2, 0)


def test_oversized_and_undecodable_text_is_set_aside_and_counted(history_database: str, tmp_path: Path) -> None:
    late(history_database, domain="x" * 5000 + ".example")
    late(history_database, reply="y" * 70_000)

    done = exported(history_database, tmp_path)

    reasons = {reason: rows for made in done.exported for reason, rows in made.quarantined.items()}
    assert reasons == {"recipientdomain of more than 255 octets": 1, "reply_text of more than 65536 octets": 1}
    same(history_database, tmp_path)
    aside = catalog.opened(str(tmp_path)).needed("quarantine").scan().to_arrow().to_pylist()
    assert {row["reason"] for row in aside} == set(reasons)
    assert {len(dict(row["row"])["recipientdomain"]) for row in aside} == {5008, len("late.example")}


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
    assert victim not in {each.day for each in known(tmp_path, "attempts")}


def test_an_unwritable_lake_is_one_line(history_database: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LakeFault, match=r"--lake: .* cannot be written"):
        exported(history_database, file)


@pytest.mark.parametrize("name", [*("a#b", "a?b", "a%20b", "a*b", "[ab]", "{a,b}", "a\\b", "a\nb"), ""])
def test_a_folder_that_a_uri_or_spark_would_read_as_another_is_refused(tmp_path: Path, name: str) -> None:
    """Before, `a#b` became a folder `a`, and `a%20b` had the catalog of `a b`."""
    with pytest.raises(LakeFault, match="cannot be a lake; allowed: a folder without"):
        catalog.opened(str(tmp_path / name) if name else "", create=True)
    assert not list(tmp_path.iterdir())


def test_several_processes_export_the_same(history_database: str, tmp_path: Path) -> None:
    lake = catalog.opened(str(tmp_path), create=True)
    with workers.started(2) as runner:
        export.export(history_database, lake, runner)
    same(history_database, tmp_path)


def test_an_error_in_a_worker_process_is_raised_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with workers.started(2) as runner, pytest.raises(LakeFault, match="cannot be written"):
        runner.run(written, [portion.Place(f"file://{tmp_path}/file/x", pa.schema([]), storage.FolderIO())], print)


def written(place: portion.Place) -> str:
    return portion.write(place, [])


def test_a_lake_whose_name_is_too_long_is_one_line(tmp_path: Path) -> None:
    for create in (False, True):
        with pytest.raises(LakeFault, match=r"--lake: .* cannot be (read|written): File name too long"):
            catalog.opened(str(tmp_path / ("x" * 300)), create=create)


def test_a_second_export_at_the_same_time_is_refused(history_database: str, tmp_path: Path) -> None:
    lake = catalog.opened(str(tmp_path), create=True)
    with lake.alone(), pytest.raises(LakeFault, match="another export"):
        export.export(history_database, lake, Here())
