"""test_analytics_pure — digests, portions, classes, quarantine, Spark's settings and counts, without a server"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from datetime import UTC, date, datetime
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from scripts.analytics import java_runtime, priority, session, spark_errors, terminal
from scripts.analytics.generate import rows as generate_rows
from scripts.analytics.source import portion as source_read
from scripts.analytics.source import portions, quarantine
from scripts.analytics.source.columns import ATTEMPTS
from shared.errors import PillarboxError
from shared.masking import show

if TYPE_CHECKING:
    from pathlib import Path

_DAY = date(2026, 3, 2)


def table(**columns: list[object]) -> pa.Table:
    return pa.table(columns)


def test_portions_cover_a_day_without_gap_and_without_end() -> None:
    cut = portions.cut(portions.Leaf(1, _DAY, 10), pages=4)
    assert [portion.first for portion in cut] == [0, 4, 8]
    assert [portion.last for portion in cut[:-1]] == [4, 8]
    assert cut[-1].last > 10**9
    assert cut[0].since == datetime(2026, 3, 2, tzinfo=UTC)


def test_an_empty_day_is_one_portion() -> None:
    assert len(portions.cut(portions.Leaf(1, _DAY, 0))) == 1


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


@pytest.mark.parametrize("octets", [1, 1 << 19, 1 << 20, 3 << 20])
def test_a_row_longer_than_the_parse_block_is_read(octets: int) -> None:
    texts = ["short", "y" * octets, "short"] * 3
    table = source_read.parse("".join(f'"{text}",7\n' for text in texts).encode(), ATTEMPTS, ["reply_text", "id"])
    assert table["reply_text"].to_pylist() == texts


def test_a_local_spark_compiles_nothing_for_little_history_and_a_cluster_keeps_its_own_settings() -> None:
    chosen, usual = (session.settings("local[1]", None, 2, 1 << 30, small=small) for small in (True, False))
    assert chosen.items() >= session.SMALL.items()
    place = f'"-Djava.io.tmpdir={tempfile.gettempdir()}"'
    always = f"-XX:+UseSerialGC {session.UNVERIFIED}"
    assert chosen["spark.driver.extraJavaOptions"] == f"{always} -XX:TieredStopAtLevel=1 {place}"
    assert "spark.sql.codegen.wholeStage" not in usual
    assert usual["spark.driver.extraJavaOptions"] == f"{always} -XX:CompileThresholdScaling=3 {place}"
    for master in ("spark://cluster:7077", "sc://server"):
        assert session.settings(master, None, 2, 1 << 30, small=True) == session.settings(master, None, 2, 1 << 30)


def test_a_temporary_folder_from_which_no_code_may_run_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(PillarboxError, match=r"^/\S+ is mounted with noexec, .* allowed: a TMPDIR that is .* without"):
        session.check_temporary_folder("local[1]")
    with pytest.raises(PillarboxError, match=r"^/tmp is mounted with noexec, .* allowed: a /tmp without noexec$"):
        session.check_temporary_folder("spark://cluster:7077")


def test_settings_follow_the_machine_and_where_spark_runs() -> None:
    local = session.settings("local[*]", None, 2, 16 << 30)
    assert local["spark.sql.shuffle.partitions"] == "2"
    assert local["spark.driver.memory"] == "4096m"
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.host" not in session.settings("spark://cluster:7077", None, 2, 1 << 30)
    # A server of Spark Connect has settings of its own; a session sets only what it may.
    assert all(key.startswith("spark.sql.") for key in session.settings("sc://server", None, 2, 1 << 30))


@pytest.mark.parametrize(
    ("master", "awaited", "step"),
    [
        ("local[1]", False, "only_in_idle_time"),
        ("local[1]", True, "lower"),
        ("spark://cluster:7077", False, "lower"),  # executors give up a driver that does not answer
    ],
)
def test_only_a_local_session_that_is_not_awaited_runs_in_idle_time(
    monkeypatch: pytest.MonkeyPatch, master: str, step: str, *, awaited: bool
) -> None:
    taken: list[str] = []
    for name in ("lower", "only_in_idle_time"):
        monkeypatch.setattr(priority, name, partial(taken.append, name))
    with pytest.raises(PillarboxError, match="--memory"), session.started(master, "lots", awaited=awaited):
        pass
    assert taken == [step]


@pytest.mark.parametrize("memory", ["lots", "0g", "1k", "511m", "2", "2 g", "9" * 5000 + "g"])
def test_an_invalid_memory_size_is_refused_in_one_line(memory: str) -> None:
    with pytest.raises(PillarboxError, match=f"--memory: {show(memory)} is not a size from 512m on; allowed: 512m, 2g"):
        session.settings("local[*]", memory, 1, 1)


@pytest.mark.parametrize("memory", ["512m", "1g", "2GB", "524288k"])
def test_a_memory_size_is_passed_on(memory: str) -> None:
    assert session.settings("local[*]", memory, 1, 1)["spark.driver.memory"] == memory


def test_a_server_of_spark_connect_that_is_silent_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object, **__: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr("socket.create_connection", silent)
    said = "^Spark cannot start with --master sc://server: timed out$"
    with pytest.raises(PillarboxError, match=said), session.started("sc://server"):
        pass


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("127.0.0.1:1", "Connection refused"),
        ("127.0.0.1:99999", "Port out of range 0-65535"),
        ("[::1]:1/;user_id=x", "(Connection refused|Cannot assign requested address|.* not supported by protocol)"),
    ],
)
def test_a_server_of_spark_connect_that_does_not_answer_is_one_line_at_once(place: str, reason: str) -> None:
    """Spark asks such a server again for ten minutes."""
    with (
        pytest.raises(
            PillarboxError, match=f"^Spark cannot start with --master {re.escape(f'sc://{place}')}: {reason}$"
        ),
        session.started(f"sc://{place}"),
    ):
        pass


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


@pytest.mark.parametrize("text", ["0", "", "k", "-1", "1.5m", "1001m", "9" * 5000])
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


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Thrown from the Python worker:\nTraceback:\n  File, line 1\nValueError: no\n", "Spark: ValueError: no"),
        (
            "from the Python worker:\n: org.apache.spark.SparkException: no\n",
            "Spark: org.apache.spark.SparkException: no",
        ),
        ("x\nshared.errors.DatabaseUnavailable: the database is gone\n", "the database is gone"),
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///lake/a.parquet. SQLSTATE",
            "/lake/a.parquet: the file is damaged or missing; nothing was reported; export its day again with --again",
        ),
    ],
)
def test_the_error_of_a_spark_worker_is_named(said: str, words: str) -> None:
    assert spark_errors.one_line(ValueError(said)) == words


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
    assert spark_errors.first_words(ValueError(said)) == words
