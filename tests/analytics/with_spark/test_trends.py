"""test-trends — trends of reputation, warm-up, alarms and the forecast of disk, from synthetic days"""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.analytics.history import MONDAY, attempts, rolled, tuples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def days(spark: SparkSession) -> DataFrame:
    """Two weeks: one provider falls from 95 to 60 % on the last day, one holds 90 %, one has few; a source is new."""
    found: list[tuple[Any, ...]] = []

    def add(day: int, provider: str, source: str, delivered: int, deferred: int) -> None:
        at = MONDAY + timedelta(days=day)
        found.append((at, source, 1, "delivered", provider, delivered, 0))
        found.append((at, source, 1, "deferred", provider, deferred, deferred))

    for day in range(14):
        add(day, "falls", "old", *((600, 400) if day == 13 else (950, 50)))
        add(day, "holds", "old", 900 + day % 3, 100 - day % 3)
        add(day, "few", "old", *((0, 9) if day == 13 else (9, 0)))
        if day >= 11:
            add(day, "holds", "new", 10 * 2 ** (day - 10) - 2, 2)
    columns = "day timestamp, source string, step int, outcome string, provider string, attempts long, blamed long"
    return spark.createDataFrame(found, columns).cache()


def test_a_provider_that_takes_less_than_before_falls(days: DataFrame) -> None:
    from scripts.analytics.analyses.trends import reputation  # noqa: PLC0415

    found = tuples(reputation(days), "provider", "source", "trend", "attempts", "share", "before", "blamed_share")
    assert found[0] == ("falls", "old", "falling", 7000, 0.9, 0.95, pytest.approx(0.1))
    assert {row[:3] for row in found[1:]} == {
        ("holds", "old", "steady"),
        ("few", "old", "steady"),
        ("holds", "new", "new"),
    }


def test_the_days_of_a_new_source_address_are_numbered(days: DataFrame) -> None:
    from scripts.analytics.analyses.trends import warmup  # noqa: PLC0415

    assert tuples(warmup(days), "source", "number", "attempts", "growth", "share") == [
        ("new", 1, 20, None, 0.9),
        ("new", 2, 40, 2.0, 0.95),
        ("new", 3, 80, 2.0, 0.975),
    ]


def test_alarms_are_of_the_last_two_days_and_of_enough_attempts(spark: SparkSession, days: DataFrame) -> None:
    from scripts.analytics.analyses.alarms import alarms  # noqa: PLC0415
    from scripts.analytics.analyses.volume import usual  # noqa: PLC0415

    counts = dict.fromkeys(range(14 * 24), 100)
    counts[10] = counts[13 * 24 + 2] = 500  # the first is long past
    hours = [(MONDAY + timedelta(hours=hour), n) for hour, n in counts.items()]
    volume = usual(spark.createDataFrame(hours, "hour timestamp, attempts long"))
    found = tuples(alarms(days, volume), "kind", "subject", "value", "usual", "score")
    # The source address has both providers: 1500 of 2000 on that day, where 1850 are usual.
    assert [row[:2] for row in found] == [("volume", "all"), ("provider", "falls"), ("source", "old")]
    assert [row[2:4] for row in found[:2]] == [(500.0, 100.0), (0.6, 0.95)]
    assert found[1][4] == pytest.approx(-35.0)


def test_a_reply_for_reputation_is_counted_as_blame(spark: SparkSession) -> None:
    counted = rolled(
        spark,
        attempts(
            {"remote": "mx.a.example:25", "outcome": "failed", "reply_code": 550, "reply_enhanced": "5.7.1"},
            {"remote": "mx.a.example:25", "outcome": "deferred", "reply_code": 421, "reply_enhanced": None},
            {"remote": "mx.a.example:25", "outcome": "failed", "reply_code": 550, "reply_enhanced": "5.1.7"},
            {"remote": "mx.a.example:25", "outcome": "lease_expired", "reply_code": None, "reply_enhanced": None},
        ),
    )["days"]
    found = {(row[0], row[1]): row[2:] for row in tuples(counted, "outcome", "provider", "attempts", "blamed")}
    assert found == {
        ("failed", "a.example"): (2, 1),
        ("deferred", "a.example"): (1, 1),
        ("lease_expired", "a.example"): (1, 0),
    }


def test_disk_grows_by_the_trend_of_its_days(spark: SparkSession) -> None:
    from scripts.analytics.analyses.capacity import capacity  # noqa: PLC0415

    first = date(2026, 3, 2)
    sizes = [("attempts", first + timedelta(days=n), 1000 + 10 * n) for n in range(20)]
    sizes += [("archive", first + timedelta(days=n), 500) for n in range(3)]
    frame = spark.createDataFrame(sizes, "history string, day date, octets long")
    found = tuples(capacity(frame), "history", "a_day", "partitions", "octets")
    assert [row for row in found if row[0] == "archive"] == [
        ("archive", 500, days, 500 * days) for days in (3, 10, 33, 93, 368)
    ]
    now, week = [row for row in found if row[0] == "attempts"][:2]
    assert now == ("attempts", 1190, 20, 21_900)
    assert week == ("attempts", 1260, 27, 21_900 + sum(range(1200, 1270, 10)))
