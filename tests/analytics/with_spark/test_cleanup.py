"""test-cleanup — days are dropped only after the lake was verified, and orphans are found, reported and repaired"""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from pyarrow import parquet

from scripts.analytics.cleanup import command as cleanup
from scripts.analytics.cleanup import orphans
from scripts.analytics.cleanup import verify as cleanup_verify
from scripts.analytics.lake import catalog
from scripts.analytics.lake import files as lake_files
from tests.fixtures.analytics.lake import DAYS, ask, damage, exported, files, in_lake, known, late, same, today

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scripts.analytics.lake.catalog import Lake
    from scripts.analytics.source.portions import Leaf
    from tests.fixtures.database.factory import Factory

pytestmark = pytest.mark.slow

_NOW = timedelta(0)

type Clean = Callable[..., cleanup.CleanupReport]


@pytest.fixture
def clean(spark: SparkSession) -> Clean:
    """One run of the clean-up."""

    def run(uri: str, lake: Path, *, yes: bool = True, keep: timedelta = _NOW) -> cleanup.CleanupReport:
        return cleanup.cleanup(uri, catalog.opened(str(lake)), spark, keep, timedelta(days=7), yes=yes)

    return run


def days_left(uri: str) -> int:
    return int(
        ask(uri, "SELECT count(DISTINCT ts::date) FROM pillarbox.attempts WHERE ts < date_trunc('day', now(), 'UTC')")
    )


def test_verified_days_are_dropped_and_dated_in_the_lake(
    clean: Clean, history_database: str, exported_lake: Path
) -> None:
    done = clean(history_database, exported_lake)

    assert {each.state for each in done.days} == {"dropped"}
    assert days_left(history_database) == 0
    assert all(each.dropped for table in ("attempts", "archive") for each in known(exported_lake, table))
    assert exported(history_database, exported_lake).refused == []


def test_without_yes_days_are_verified_and_kept(clean: Clean, history_database: str, exported_lake: Path) -> None:
    assert {each.state for each in clean(history_database, exported_lake, yes=False).days} == {"verified"}
    assert days_left(history_database) == DAYS


def test_days_younger_than_keep_are_skipped(clean: Clean, history_database: str, exported_lake: Path) -> None:
    assert clean(history_database, exported_lake, keep=timedelta(days=30)).days == []


def test_a_day_that_was_never_exported_is_refused(clean: Clean, history_database: str, tmp_path: Path) -> None:
    exported(history_database, tmp_path, until=today() - timedelta(days=30))
    done = clean(history_database, tmp_path)
    assert {each.reason for each in done.refused} == {"the day is not in the lake: export it first"}
    assert days_left(history_database) == DAYS


def test_a_day_with_new_rows_is_kept_and_the_others_dropped(
    clean: Clean, history_database: str, exported_lake: Path
) -> None:
    late(history_database)

    [refused] = clean(history_database, exported_lake).refused

    assert "export it again" in refused.reason
    assert days_left(history_database) == 1


def test_a_row_added_after_verification_keeps_the_day(
    clean: Clean, history_database: str, exported_lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = cleanup_verify.fault

    def then_late(spark: SparkSession, uri: str, lake: Lake, leaf: Leaf, *given: Any) -> str | None:
        found = verify(spark, uri, lake, leaf, *given)
        if leaf.day == today() - timedelta(days=1):
            late(history_database)
        return found

    monkeypatch.setattr(cleanup_verify, "fault", then_late)
    refused = [each for each in clean(history_database, exported_lake).refused if each.table == "attempts"]
    assert [each.reason for each in refused] == ["the rows have changed since they were verified: export again"]
    assert days_left(history_database) == 1


@pytest.mark.parametrize("changed", ["a letter", "a NULL that moved to the next column"])
def test_a_file_with_one_value_changed_keeps_the_day(
    clean: Clean, history_database: str, exported_lake: Path, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it had been written wrongly, with as many rows; its length is not looked at."""
    file = files(exported_lake, "attempts")[0]
    table = parquet.ParquetFile(file).read()
    columns = {name: table[name].to_pylist() for name in ("partid", "jobid", "reply_text")}
    if changed == "a letter":
        columns["reply_text"][0] = "x" * len(columns["reply_text"][0] or "")
    else:
        columns["partid"][0], columns["jobid"][0] = columns["jobid"][0], columns["partid"][0]
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, table.schema.field(place), pa.array(values, pa.string()))
    parquet.write_table(table, file)
    monkeypatch.setattr(lake_files, "whole", lambda _, found: [each.file_path for each in found])

    [refused] = clean(history_database, exported_lake).refused

    assert "or their content differs" in refused.reason


def test_a_damaged_file_keeps_the_day(clean: Clean, history_database: str, exported_lake: Path) -> None:
    damage(exported_lake, "archive")

    [refused] = clean(history_database, exported_lake).refused

    assert "the file is damaged" in refused.reason


def test_files_that_nothing_needs_are_removed_once_no_commit_can_want_them(
    history_database: str, exported_lake: Path
) -> None:
    late(history_database)
    exported(history_database, exported_lake, compact=True)
    before, stray = in_lake(exported_lake, "attempts"), exported_lake / "attempts" / "data" / "stray.parquet"
    shutil.copy(files(exported_lake, "attempts")[0], stray)
    lake, done, later = catalog.opened(str(exported_lake)), cleanup.CleanupReport(), timedelta(days=7)

    cleanup.tidy(lake, done, later, timedelta(days=1), yes=True)
    assert (done.expired, done.files, stray.exists()) == (0, [], True)
    cleanup.tidy(lake, done, later, timedelta(0), yes=True)
    assert (done.files, stray.exists()) == ([str(stray)], False)
    cleanup.tidy(lake, done, timedelta(0), timedelta(0), yes=True)
    assert done.expired > 1

    there = set((exported_lake / "attempts" / "data").rglob("*.parquet"))
    assert there == set(files(exported_lake, "attempts"))
    assert in_lake(exported_lake, "attempts").equals(before)
    same(history_database, exported_lake)


def test_a_day_that_is_being_read_is_left_for_the_next_run(
    clean: Clean, history_database: str, exported_lake: Path
) -> None:
    with psycopg.connect(history_database) as reading:
        reading.execute("SELECT count(*) FROM pillarbox.archive")
        done = clean(history_database, exported_lake)
        assert {each.reason for each in done.refused} == {"lock timeout: other sessions read the day; try again"}
    assert clean(history_database, exported_lake).refused == []


def test_orphans_are_found_and_repaired(spark: SparkSession, factory: Factory) -> None:
    lonely = factory.message()
    kept = factory.message()
    [whole] = factory.rows(message=kept)
    bodiless_body = factory.message()
    [bodiless] = factory.rows(message=bodiless_body, domain="gone.example")
    factory.sql("UPDATE pillarbox.messages SET ts = now() - interval '2 hours'")
    factory.sql("DELETE FROM pillarbox.messages WHERE id = %(id)s", id=bodiless_body)
    late(factory.uri, 0)  # a try at recipient 1
    unknown = factory.one("SELECT queue__id FROM pillarbox.attempts")
    factory.sql("UPDATE pillarbox.attempts SET queue__id = 987654")
    assert unknown == 1

    found = orphans.find(spark, factory.uri)
    assert (found.bodies, found.recipients, found.attempts) == ([str(lonely)], [bodiless], [987654])
    assert (found.released, found.held) == (0, 0)

    orphans.mend(factory.uri, found)
    assert (found.released, found.held) == (1, 1)
    assert factory.one("SELECT status FROM pillarbox.queue WHERE id = %(id)s", id=bodiless) == "HOLD"
    assert factory.one("SELECT status FROM pillarbox.queue WHERE id = %(id)s", id=whole) == "DELIVER"
    assert factory.one("SELECT messages__id FROM pillarbox.released") == lonely
    again = orphans.find(spark, factory.uri)
    assert again.bodies == []
