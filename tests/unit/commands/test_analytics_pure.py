"""test_analytics_pure — digests, portions, classes, quarantine, Spark's settings and counts, without a server"""

from __future__ import annotations

import argparse
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from scripts.analytics import classes, java_runtime, manifest, runner, session, terminal
from scripts.analytics.export import quarantine
from scripts.analytics.generate import rows as generate_rows
from scripts.analytics.report import rollup_archive, rollup_attempts
from scripts.analytics.source import digest, fingerprint, portions
from scripts.analytics.source import portion as source_read
from scripts.analytics.source.columns import ATTEMPTS
from shared.errors import ConfigError, PillarboxError
from tests.fixtures.database import history

if TYPE_CHECKING:
    from pathlib import Path

_DAY = date(2026, 3, 2)


def table(**columns: list[object]) -> pa.Table:
    return pa.table(columns)


def test_a_digest_is_the_sum_of_its_parts_in_any_order() -> None:
    whole = table(id=[1, 2, 3], text=["a", None, "ccc"], span=[0.5, 1.0, None])
    parts = [digest.of_table(whole.take([2])), digest.of_table(whole.take([1, 0]))]
    assert digest.added(*parts) == digest.of_table(whole)


@pytest.mark.parametrize(
    "other",
    [
        table(id=[1, 2], text=["b", "a"]),
        table(id=[1, 2], text=["a", "c"]),
        table(id=[1, 2], text=["a", None]),
        table(id=[1, 2], text=["a", ""]),
        table(id=[2, 2], text=["a", "b"]),
        table(id=[1, 2, 2], text=["a", "b", "b"]),
    ],
)
def test_a_digest_sees_every_change(other: pa.Table) -> None:
    assert digest.of_table(other) != digest.of_table(table(id=[1, 2], text=["a", "b"]))


def test_portions_cover_a_day_without_gap_and_without_end() -> None:
    cut = portions.cut(portions.Leaf(1, _DAY, 10), pages=4)
    assert [portion.first for portion in cut] == [0, 4, 8]
    assert [portion.last for portion in cut[:-1]] == [4, 8]
    assert cut[-1].last > 10**9
    assert cut[0].since == datetime(2026, 3, 2, tzinfo=UTC)


def test_an_empty_day_is_one_portion() -> None:
    assert len(portions.cut(portions.Leaf(1, _DAY, 0))) == 1


def test_classes_fall_back_to_other() -> None:
    domains = pa.chunked_array([["GMAIL.com", "example.com"]])
    assert classes.classify(domains, classes.KNOWN).to_pylist() == ["google", "other"]


def test_an_invalid_class_is_refused_with_file_line_and_allowed_form(tmp_path: Path) -> None:
    file = tmp_path / "classes"
    file.write_text("a.example big\nb.example ../up\n")
    with pytest.raises(
        ConfigError, match=r"classes:2: 'b.example ../up' is not valid; allowed: a domain and its class"
    ):
        classes.load(file)


def test_rows_with_invalid_utf8_are_set_aside_and_the_rest_kept() -> None:
    names = ["id", "recipientdomain", "reply_text"]
    read = source_read.parse(b'1,a.example,fine\n2,b.example,caf\xe9\n3,c.example,\n4,d.example,""\n', ATTEMPTS, names)
    kept, bad = quarantine.divide(read, ATTEMPTS)
    assert kept["reply_text"].to_pylist() == ["fine", None, ""]
    assert quarantine.counts(bad) == {"reply_text: not UTF-8": 1}
    assert bad["reply_text"].to_pylist() == [b"caf\xe9"]


def test_line_ends_within_text_do_not_split_rows() -> None:
    read = source_read.parse(b'1,"two\nlines, ""quoted"""\n', ATTEMPTS, ["id", "reply_text"])
    assert read["reply_text"].to_pylist() == ['two\nlines, "quoted"']


def test_an_invalid_manifest_is_refused_with_its_file_name(tmp_path: Path) -> None:
    file = manifest.place(tmp_path, "attempts", _DAY)
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    with pytest.raises(manifest.LakeFault, match=r"2026-03-02\.json: not a Pillarbox manifest"):
        manifest.load(tmp_path, "attempts", _DAY)


def test_a_lake_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    manifest.commit(tmp_path, manifest.Manifest("attempts", _DAY, 1, fingerprint.Fingerprint(), (), schema_version=99))
    with pytest.raises(manifest.LakeFault, match="schema_version: 99 is not supported"):
        manifest.load(tmp_path, "attempts", _DAY)


@pytest.mark.parametrize("octets", [1, 1 << 19, 1 << 20, 3 << 20])
def test_a_row_longer_than_the_parse_block_is_read(octets: int) -> None:
    texts = ["short", "y" * octets, "short"] * 3
    table = source_read.parse("".join(f'"{text}",7\n' for text in texts).encode(), ATTEMPTS, ["reply_text", "id"])
    assert table["reply_text"].to_pylist() == texts


def test_a_manifest_reads_as_it_was_written(tmp_path: Path) -> None:
    entry = manifest.LakeFile("a", 1, 2, "x")
    made = manifest.Manifest(
        "attempts", _DAY, 3, fingerprint.Fingerprint(2, 2**70, 3, 4, 5), (entry,), {"long": 1}, ("q",)
    )
    manifest.commit(tmp_path, made)
    assert manifest.load(tmp_path, "attempts", _DAY) == made


def test_shuffle_partitions_and_memory_follow_the_machine_and_the_work() -> None:
    light = session.settings("local[*]", None, 2, 16 << 30, light=True)
    heavy = session.settings("local[*]", None, 2, 16 << 30, light=False)
    assert heavy["spark.sql.shuffle.partitions"] == "2"
    assert (light["spark.driver.memory"], heavy["spark.driver.memory"]) == ("3072m", "4096m")
    assert heavy["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.extraJavaOptions" in light.keys() - heavy.keys()
    assert "spark.driver.host" not in session.settings("spark://cluster:7077", None, 2, 1 << 30, light=True)


def test_an_invalid_memory_size_is_refused_in_one_line() -> None:
    with pytest.raises(PillarboxError, match=r'--memory: "lots" is not a size; allowed: 512m, 2g'):
        session.settings("local[*]", "lots", 1, 1, light=False)


def test_missing_or_old_java_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java_runtime, "JAVA_HOME", tmp_path)
    monkeypatch.setattr(java_runtime, "installed", lambda: iter([tmp_path / "java"]))
    monkeypatch.setattr(java_runtime, "version", lambda _: None)
    with pytest.raises(PillarboxError, match=r"^Spark needs Java 17 to 25 and none was found"):
        session.java_home()
    monkeypatch.setattr(java_runtime, "version", lambda _: 11)
    with pytest.raises(PillarboxError, match=r"java is Java 11; Spark needs Java 17 to 25"):
        session.java_home()


@pytest.mark.parametrize(("text", "number"), [("5", 5), ("250k", 250_000), ("10M", 10_000_000)])
def test_counts_take_thousands_and_millions(text: str, number: int) -> None:
    assert terminal.count(text) == number


@pytest.mark.parametrize("text", ["0", "", "k", "-1", "1.5m"])
def test_an_invalid_count_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        terminal.count(text)


def test_the_same_seed_makes_the_same_history() -> None:
    first = generate_rows.First(1, 1, 1)
    one, other = (generate_rows.make(3, _DAY, 0, 500, first, date(2026, 3, 9)) for _ in range(2))
    assert one[0].equals(other[0])
    assert one[1].equals(other[1])
    assert not one[0].equals(generate_rows.make(4, _DAY, 0, 500, first, date(2026, 3, 9))[0])


def test_generated_history_looks_like_real_history() -> None:
    attempts, archive = generate_rows.make(3, _DAY, 0, 20_000, generate_rows.First(1, 1, 1), date(2026, 3, 30))
    outcomes = attempts["outcome"].to_pylist()
    assert 0.7 < outcomes.count("delivered") / len(outcomes) < 0.95
    assert archive.num_rows == 20_000
    assert pytest.approx(attempts.num_rows / 20_000, rel=0.02) == generate_rows.TRIES
    domains = np.unique(attempts["recipientdomain"].to_numpy(), return_counts=True)[1]
    assert domains.max() > 20 * np.median(domains)
    assert set(attempts["retry_count"].to_pylist()) >= {1, 2, 3}


@pytest.mark.parametrize("name", ["attempts", "archive"])
def test_merged_rollups_can_be_merged_again(name: str) -> None:
    """As in a part of more rows than are held at a time."""
    rollup = {"attempts": rollup_attempts, "archive": rollup_archive}[name]
    failed = {
        "attempts": {"outcome": "failed"},
        "archive": {"result": "failed", "last_error": "550 5.1.1 no such user"},
    }
    rows = getattr(history, name)({"times": 2}, failed[name])
    once = rollup.rollup(rows.select(rollup.COLUMNS))
    found = rollup.merged([rollup.merged([once, once]), once])
    for table, (_, values) in rollup.TABLES.items():
        assert found[table].num_rows == once[table].num_rows
        for column in (column for column, how in values.items() if how == "sum"):
            assert sum(found[table][column].to_pylist()) == 3 * sum(once[table][column].to_pylist())


@pytest.mark.parametrize(
    "line", ["ValueError: no", "pyarrow.lib.ArrowInvalid: Schema at index 1", ": org.apache.spark.SparkException: no"]
)
def test_the_error_of_a_spark_worker_is_named(line: str) -> None:
    said = f"Thrown from the Python worker:\nTraceback (most recent call last):\n  File, line 1\n{line}\n"
    assert str(runner._ours(said)) == f"Spark: {line.removeprefix(': ')}"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("[DIVIDE_BY_ZERO] Division by zero.\n== SQL ==\n", "[DIVIDE_BY_ZERO] Division by zero."),
        ("An error occurred while calling o1.x.\n: java.io.IOException:  no\n\tat x", "java.io.IOException: no"),
        ("", "ValueError"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_an_error_of_spark_is_one_line(said: str, words: str) -> None:
    assert session.first_words(ValueError(said)) == words
