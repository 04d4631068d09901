"""test-volume — seasons, flags, forecasts, throttling and faulty history, from synthetic hours"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.analytics.history import MONDAY, archive, attempts, rolled, tuples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slow


def _hours(spark: SparkSession, counts: dict[int, int]) -> DataFrame:
    """Attempts by the number of hours since MONDAY."""
    rows = [(MONDAY + timedelta(hours=hour), n) for hour, n in counts.items()]
    return spark.createDataFrame(rows, "hour timestamp, attempts long")


def _after(moment: datetime) -> float:
    return (moment.astimezone(MONDAY.tzinfo) - MONDAY) / timedelta(hours=1)


def test_a_season_of_the_week_flags_the_odd_hour_and_forecasts_the_next(spark: SparkSession) -> None:
    from scripts.analytics.analyses.volume import forecast, usual  # noqa: PLC0415

    # Four weeks: 100 in every hour of Monday to Friday, 20 at week-ends; one burst, one hour of silence.
    counts = {hour: 100 if hour % 168 < 120 else 20 for hour in range(4 * 168)}
    counts[2 * 168 + 10] = 500
    del counts[2 * 168 + 30]
    known = usual(_hours(spark, counts)).cache()

    odd = tuples(known.where("unusual"), "hour", "attempts", "usual", "score")
    # Every other hour is as usual, so the spread is its least: the square root of 100.
    assert [(_after(row[0]), *row[1:]) for row in odd] == [(346.0, 500, 100.0, 40.0), (366.0, 0, 100.0, -10.0)]
    assert known.count() == 4 * 168
    ahead = tuples(forecast(known), "hour", "expected", "low", "high")
    assert [_after(ahead[0][0]), _after(ahead[-1][0])] == [672.0, 839.0]
    assert [row[1] for row in ahead] == [100.0] * 120 + [20.0] * 48
    assert (ahead[0][2], ahead[0][3]) == (pytest.approx(83.55), pytest.approx(116.45))


def weeks(count: int) -> dict[int, int]:
    """So many weeks: 100 in every hour of Monday to Friday, 5 at week-ends."""
    return {hour: 100 if hour % 168 < 120 else 5 for hour in range(count * 168)}


@pytest.mark.parametrize(("count", "unjudged"), [(1, 48), (2, 0), (3, 0)])
def test_weekends_are_judged_from_the_second_on_and_are_not_unusual(
    spark: SparkSession, count: int, unjudged: int
) -> None:
    from scripts.analytics.analyses.volume import forecast, usual  # noqa: PLC0415

    counts = weeks(count)
    counts[30] = 500
    known = usual(_hours(spark, counts)).cache()
    odd = tuples(known.where("unusual"), "hour", "attempts")
    assert [(_after(hour), attempts) for hour, attempts in odd] == [(30.0, 500)], "a burst on a working day is"
    assert known.where("score IS NULL").count() == unjudged
    ahead = tuples(forecast(known), "expected")
    assert [row[0] for row in ahead[120:]] == [5.0] * 48


def test_two_days_are_not_judged_and_forecast_equal_days(spark: SparkSession) -> None:
    from scripts.analytics.analyses.volume import forecast, usual  # noqa: PLC0415

    counts = dict.fromkeys(range(48), 10)
    counts[30] = 500
    known = usual(_hours(spark, counts)).cache()
    assert known.where("unusual OR score IS NOT NULL").count() == 0
    expected = [row[0] for row in tuples(forecast(known), "expected")]
    assert expected[0] == expected[96] == 10.0, "Wednesday and Sunday"


def test_with_less_than_three_weeks_the_season_is_a_day(
    spark: SparkSession,
) -> None:
    from scripts.analytics.analyses.volume import forecast, usual  # noqa: PLC0415

    quiet, busy = {hour: 10 * (hour % 24) for hour in range(48)}, {hour: 20 * (hour % 24) for hour in range(48, 240)}
    known = usual(_hours(spark, quiet | busy))
    ahead = tuples(forecast(known, 24), "expected")
    assert [row[0] for row in ahead] == [20.0 * hour for hour in range(24)]


def test_a_throttling_destination_is_found_with_its_throughput(spark: SparkSession) -> None:
    from scripts.analytics.analyses.throttling import throttling  # noqa: PLC0415

    def at(hour: int, n: int, outcome: str = "delivered", **more: Any) -> dict[str, Any]:
        return {"ts": MONDAY + timedelta(hours=hour, minutes=7), "times": n, "outcome": outcome, **more}

    slow = {"reply_code": 421, "reply_enhanced": "4.7.28", "reply_text": "unusual rate of mail"}
    grey = {
        "reply_code": 450,
        "reply_enhanced": "4.7.1",
        "reply_text": "Greylisted, come back",
        "recipientdomain": "grey.example",
    }
    words = {"reply_code": 451, "reply_enhanced": None, "reply_text": "Too many connections"}
    found = throttling(
        rolled(
            spark,
            attempts(
                at(0, 30), at(1, 20), at(1, 6, "deferred", **slow), at(2, 40), at(2, 4, "deferred", **slow),
                at(3, 10), at(3, 5, "deferred", **words), at(0, 20, "deferred", **grey),
            ),
        )["paces"]
    )  # fmt: skip
    rows = tuples(found, "recipientdomain", "slowed_hours", "hours", "slowed", "let_through", "calm", "last")
    # Hour 2 has fewer than five. The medians are those of 20 and 10 slowed, of 30 and 40 calm.
    assert [row[:6] for row in rows] == [("example.com", 2, 4, 11, 15.0, 35.0)]
    assert _after(rows[0][6]) == 3


def test_faulty_history_is_counted_and_not_dropped(spark: SparkSession) -> None:
    from scripts.analytics.analyses.soundness import soundness  # noqa: PLC0415
    from scripts.analytics.analyses.volume import usual  # noqa: PLC0415
    from scripts.analytics.analyses.wordings import wordings  # noqa: PLC0415

    tried = attempts(
        {},
        {"duration": -3600.0},
        {"recipientdomain": "has space.example", "outcome": "failed", "reply_text": "caf\ufffd"},
        {"ts": MONDAY + timedelta(days=3), "recipientdomain": "x" * 300},
    )
    given = rolled(spark, tried, archive({}, {"took": -1}))
    known, said = usual(given["hours"]), wordings(given["replies"])
    found = soundness(given["tries"], given["destinations"], given["waits"], known, said)
    assert tuples(found, "rows", "fault") == [
        (4, "attempts read"),
        (2, "finished recipients read"),
        (1, "tries that ended before they began"),
        (1, "recipients finished before receipt"),
        (2, "attempts to an invalid domain"),
        (1, "attempts whose reply is not UTF-8"),
        (2, "days without an attempt"),
    ]
    assert tuples(found, "treatment")[-1] == ("counted as 0 2026-03-03, 2026-03-04",)
