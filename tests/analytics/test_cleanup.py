"""test-cleanup — days are dropped only after the lake was verified, and orphans are found, reported and repaired"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from pyarrow import parquet

from scripts.analytics import manifest
from scripts.analytics.cleanup import command as cleanup
from scripts.analytics.cleanup import orphans
from scripts.analytics.cleanup import verify as cleanup_verify
from scripts.analytics.runner import Here
from tests.fixtures.database.lake import DAYS, ask, exported, late, today

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from scripts.analytics.source.portions import Leaf
    from tests.fixtures.database.factory import Factory

pytestmark = pytest.mark.slow

_NOW = timedelta(0)


def clean(uri: str, lake: Path, *, yes: bool = True, keep: timedelta = _NOW) -> cleanup.CleanupReport:
    return cleanup.cleanup(uri, lake, Here(), keep, yes=yes)


def days_left(uri: str) -> int:
    return int(
        ask(uri, "SELECT count(DISTINCT ts::date) FROM pillarbox.attempts WHERE ts < date_trunc('day', now(), 'UTC')")
    )


def test_verified_days_are_dropped_and_dated_in_the_manifest(history_database: str, exported_lake: Path) -> None:
    done = clean(history_database, exported_lake)

    assert {each.state for each in done.days} == {"dropped"}
    assert days_left(history_database) == 0
    assert all(each.dropped for table in ("attempts", "archive") for each in manifest.every(exported_lake, table))
    assert exported(history_database, exported_lake).refused == []


def test_without_yes_days_are_verified_and_kept(history_database: str, exported_lake: Path) -> None:
    assert {each.state for each in clean(history_database, exported_lake, yes=False).days} == {"verified"}
    assert days_left(history_database) == DAYS


def test_days_younger_than_keep_are_skipped(history_database: str, exported_lake: Path) -> None:
    assert clean(history_database, exported_lake, keep=timedelta(days=30)).days == []


def test_a_day_that_was_never_exported_is_refused(history_database: str, tmp_path: Path) -> None:
    (tmp_path / manifest.STAGING).mkdir()
    done = clean(history_database, tmp_path)
    assert {each.reason for each in done.refused} == {"the day is not in the lake: export it first"}
    assert days_left(history_database) == DAYS


def test_a_day_with_new_rows_is_kept_and_the_others_dropped(history_database: str, exported_lake: Path) -> None:
    late(history_database)

    [refused] = clean(history_database, exported_lake).refused

    assert "export it again" in refused.reason
    assert days_left(history_database) == 1


def test_a_row_added_after_verification_keeps_the_day(
    history_database: str, exported_lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = cleanup_verify.fault

    def then_late(uri: str, lake: Path, leaf: Leaf, *given: Any) -> str | None:
        found = verify(uri, lake, leaf, *given)
        if leaf.day == today() - timedelta(days=1):
            late(history_database)
        return found

    monkeypatch.setattr(cleanup_verify, "fault", then_late)
    refused = [each for each in clean(history_database, exported_lake).refused if each.table == "attempts"]
    assert [each.reason for each in refused] == ["the rows have changed since they were verified: export again"]
    assert days_left(history_database) == 1


def test_a_file_with_one_value_changed_keeps_the_day(history_database: str, exported_lake: Path) -> None:
    """As if it had been written wrongly: its checksum in the manifest is right."""
    known = next(each for each in manifest.every(exported_lake, "attempts") if each.files)
    [entry, *others] = known.files
    file = exported_lake / entry.path
    table = parquet.ParquetFile(file).read()
    replies = table["reply_text"].to_pylist()
    replies[0] = "x" * len(replies[0] or "")
    changed = table.set_column(table.column_names.index("reply_text"), "reply_text", pa.array(replies, pa.string()))
    parquet.write_table(changed, file)
    again = manifest.LakeFile(entry.path, entry.rows, file.stat().st_size, manifest.sha256(file))
    manifest.commit(exported_lake, replace(known, files=(again, *others)))

    [refused] = clean(history_database, exported_lake).refused

    assert "or their content differs" in refused.reason


def test_a_damaged_file_keeps_the_day(history_database: str, exported_lake: Path) -> None:
    known = next(each for each in manifest.every(exported_lake, "archive") if each.files)
    with (exported_lake / known.files[0].path).open("r+b") as file:
        file.seek(100)
        file.write(b"\0\0\0\0")

    [refused] = clean(history_database, exported_lake).refused

    assert "is damaged" in refused.reason


def test_a_day_that_is_being_read_is_left_for_the_next_run(history_database: str, exported_lake: Path) -> None:
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
