"""test-report — a report from PostgreSQL gives PostgreSQL's own answers, and is stored once for its period

Guarantees: the analyses and the SQL they are compared with were written apart, so one checks the other.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from scripts.analytics.report import command as report
from scripts.analytics.report import store
from scripts.analytics.report.sections import Report
from shared.errors import PillarboxError
from tests.fixtures.analytics.history import MONDAY
from tests.fixtures.analytics.lake import DAYS, files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.database.factory import Factory

pytestmark = pytest.mark.slow

_DAYS = 4
_TOP = 20


def test_progress_has_one_step_for_each_group_and_table(spark: SparkSession) -> None:
    from scripts.analytics.report import counting  # noqa: PLC0415 - loads Spark
    from scripts.analytics.source.columns import HISTORIES  # noqa: PLC0415 - loads Arrow

    attempts, archive = (spark.createDataFrame([], HISTORIES[name].spark()) for name in ("attempts", "archive"))
    done: list[int] = []
    with counting.kept(attempts, archive, _TOP, lambda tables: tables, done.append) as found:
        assert all(frame.storageLevel.useMemory for name, frame in found.items() if name not in ("hours", "paces"))
    assert done == list(range(1, counting.COUNTED + 1))


def test_the_report_answers_as_postgresql_does(spark: SparkSession, factory: Factory) -> None:
    from scripts.analytics.generate.command import generate  # noqa: PLC0415 - loads Arrow
    from scripts.analytics.report.questions import ask  # noqa: PLC0415

    until = datetime.now(UTC).date()
    asked = report.Period(until - timedelta(days=_DAYS), until, None, factory.uri, _TOP)
    generate(factory.uri, 8_000, _DAYS, until, 7)

    made = report.make(spark, asked, {"a": frozenset({"1", "2"}), "b": frozenset({"3"})})
    direct = ask(factory.uri, asked.since, asked.until, _TOP)

    outcomes = ("attempts", "delivered", "deferred", "failed", "lost")
    for key, name in (("destinations", "recipientdomain"), ("transports", "transportid"), ("sources", "source")):
        expected = {
            row.name or "(unknown)": tuple(getattr(row, each) for each in outcomes)
            for row in direct["analytics_ask_deliverability"]
            if row.section == key
        }
        for row in made.rows[key]:
            if not str(row[name]).startswith("(unusable"):
                assert tuple(row[each] for each in outcomes) == expected[row[name]], key
    assert [(row["step"], row["attempts"]) for row in made.rows["steps"]] == [
        (row.step, row.attempts) for row in direct["analytics_ask_steps"]
    ]
    volume = {row["hour"].astimezone(UTC): row["attempts"] for row in made.rows["volume"] if row["attempts"]}
    assert volume == {row.hour: row.attempts for row in direct["analytics_ask_volume"]}
    weights = {row["partid"]: (row["attempts"], round(row["seconds"], 2)) for row in made.rows["weights"]}
    assert weights == {row.partid: (row.attempts, round(row.seconds, 2)) for row in direct["analytics_ask_weights"]}
    slowed = {row["recipientdomain"]: (row["slowed_hours"], row["hours"]) for row in made.rows["throttling"]}
    assert slowed
    assert slowed == {row.recipientdomain: (row.slowed_hours, row.hours) for row in direct["analytics_ask_throttling"]}
    assert sum(row["attempts"] for row in made.rows["transports"]) == made.rows["soundness"][0]["rows"]
    assert sorted(id_ for ids in made.leaves.values() for id_ in ids) == sorted(
        {*weights} - {"(unknown)"} | {"1", "2", "3"}
    )


def test_a_period_is_stored_once(factory: Factory) -> None:
    rows = [{"fault": "a\x00b", "rows": 1, "treatment": "none"}]
    odd = {"kind": "source", "subject": "192.0.2.1", "at": MONDAY, "value": 0.5, "usual": 0.9, "score": -8.0}
    found = {"soundness": rows, "alarms": [odd]}
    one = Report(MONDAY, MONDAY + timedelta(days=1), MONDAY, "the lake x", found, frozenset(), {})
    again = Report(one.since, one.until, one.made, one.origin, {"soundness": rows * 2}, frozenset({"soundness"}), {})

    assert store.store(one, factory.uri) == store.store(again, factory.uri) > 10
    stored = factory.sql(
        "SELECT more, jsonb_array_length(rows) AS n FROM pillarbox.reports WHERE section = 'soundness'"
    )
    assert [tuple(row) for row in stored] == [(True, 2)]
    later = Report(one.since, one.until + timedelta(days=1), one.made, one.origin, found, frozenset(), {})
    store.store(later, factory.uri)
    alarms = factory.sql("SELECT kind, subject, at, value, usual, score FROM pillarbox.report_alarms")
    assert [row._asdict() for row in alarms] == [odd], "once, whichever reports find it"


def test_the_report_from_the_lake_is_that_from_postgresql(
    spark: SparkSession, history_database: str, exported_lake: Path
) -> None:
    from scripts.analytics.report.text import as_document  # noqa: PLC0415 - loads Spark

    until = datetime.now(UTC).date()
    since = until - timedelta(days=DAYS)
    one = report.make(spark, report.Period(since, until, None, history_database), {})
    other = report.make(spark, report.Period(since, until, str(exported_lake)), {})
    same = [[each for each in as_document(made)["sections"] if each["key"] != "capacity"] for made in (one, other)]
    assert same[0] == same[1]
    for made in (one, other):
        kept = [(row["history"], row["partitions"]) for row in made.rows["capacity"]]
        assert kept[:2] == [("archive", DAYS), ("archive", DAYS + 7)]
    assert one.rows["destinations"]


def test_a_damaged_file_is_named_in_one_line(spark: SparkSession, exported_lake: Path) -> None:
    file = files(exported_lake, "attempts")[0]
    with file.open("r+b") as damaged:
        damaged.seek(100)
        damaged.write(bytes(file.stat().st_size // 2))
    until = datetime.now(UTC).date()
    asked = report.Period(until - timedelta(days=DAYS), until, str(exported_lake))
    with pytest.raises(PillarboxError) as refused:
        report.make(spark, asked, {})
    said = "the file is damaged or missing; nothing was reported; export its day again with --again"
    assert str(refused.value) == f"{file}: {said}"


def test_days_before_all_history_make_an_empty_report(spark: SparkSession, factory: Factory) -> None:
    made = report.make(spark, report.Period(date(2020, 1, 1), date(2020, 1, 3), None, factory.uri), {})
    assert {key for key, rows in made.rows.items() if rows} == {"soundness"}
    assert {row["rows"] for row in made.rows["soundness"]} == {0}
