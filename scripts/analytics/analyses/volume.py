"""volume — attempts by the hour: the usual number, the unusual hours, and a forecast

Owns: the season (hour of the week), its robust spread, the flags and the forecast.
Guarantees: pure; hours without a row count as 0, so a silent hour is flagged. All averages are medians, so one bad day
    changes nothing. With less than three weeks of history the season is the hour of the day, of working days and of
    week-ends apart. An hour is judged only once its slot has been seen ENOUGH times: two values do not tell which of
    them is the odd one, so week-ends are judged from the second one on, and hours of the week from the third week on.
See: B. Iglewicz and D. Hoaglin, "How to Detect and Handle Outliers", 1993: a modified z-score beyond 3.5 is an
    outlier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UNUSUAL: Final = 3.5
WEEK: Final = 168
ENOUGH: Final = 3  # hours of a slot from which its median tells the usual from the odd
_SATURDAY: Final = 5
_NORMAL: Final = 1.4826  # from a median absolute deviation to a standard deviation, if the spread is normal
_BAND: Final = 1.645  # standard deviations on each side that hold 90 %


def usual(hours: DataFrame) -> DataFrame:
    """Rows: hour, attempts, slot, usual, spread, score, unusual; by hour, none missing from the first to the last.

    hours: attempts by hour. usual: the median of its slot. spread: its median absolute deviation in attempts, at
    least the square root of the median, at least 1. score: how many spreads away, as a z-score; NULL where the slot was
    seen fewer than ENOUGH times. unusual: beyond UNUSUAL.
    """
    there = hours.groupBy("hour").agg(f.sum("attempts").alias("attempts"))
    ends = there.agg(f.min("hour").alias("first"), f.max("hour").alias("last"))
    span = f.timestamp_diff("HOUR", f.col("first"), f.col("last")) + 1
    axis = ends.where(f.col("first").isNotNull()).select(
        f.explode(f.sequence("first", "last", f.expr("INTERVAL 1 HOUR"))).alias("hour"),
        (span >= ENOUGH * WEEK).alias("weekly"),
    )
    filled = axis.join(there, "hour", "left").select(
        "hour", "weekly", f.coalesce("attempts", f.lit(0)).alias("attempts"), slot("hour", "weekly").alias("slot")
    )
    middle = filled.groupBy("slot").agg(f.median("attempts").alias("usual"), f.count("*").alias("seen"))
    away = filled.join(middle, "slot").withColumn("away", f.abs(f.col("attempts") - f.col("usual")))
    # One spread for all slots, relative to the slot's size: a single slot has too few weeks of data.
    judged = f.col("seen") >= ENOUGH
    relative = f.median(f.when(judged, f.col("away") / f.sqrt(f.greatest("usual", f.lit(1.0)))))
    wide = away.agg(f.greatest(f.lit(_NORMAL) * relative, f.lit(1.0)).alias("wide"))
    spread = f.col("wide") * f.sqrt(f.greatest("usual", f.lit(1.0)))
    scored = away.crossJoin(wide).withColumn("spread", spread)
    scored = scored.withColumn("score", f.when(judged, (f.col("attempts") - f.col("usual")) / f.col("spread")))
    flagged = scored.withColumn("unusual", f.coalesce(f.abs("score") > UNUSUAL, f.lit(False)))
    return flagged.select("hour", "attempts", "slot", "weekly", "usual", "spread", "score", "unusual").orderBy("hour")


def forecast(known: DataFrame, ahead: int = WEEK) -> DataFrame:
    """Rows: hour, expected, low, high: the `ahead` hours after the last one known.

    known: the result of `usual`. expected: the slot's median times the level, which compares the last week with its
    slots; of a slot that was never seen, the median of all days at that hour. Nine hours in ten are between low and
    high if the future is like the past.
    """
    end = known.agg(f.max("hour").alias("last"), f.max("weekly").alias("weekly"))
    recent = known.crossJoin(end.select("last")).where(f.col("hour") > f.col("last") - f.expr("INTERVAL 7 DAYS"))
    ratio = f.median(f.try_divide(f.col("attempts").cast("double"), f.col("usual")))
    level = recent.where(f.col("usual") > 0).agg(f.coalesce(ratio, f.lit(1.0)).alias("level"))
    start, stop = f.col("last") + f.expr("INTERVAL 1 HOUR"), f.col("last") + f.expr(f"INTERVAL {int(ahead)} HOURS")
    coming = end.where(f.col("last").isNotNull()).select(
        f.explode(f.sequence(start, stop, f.expr("INTERVAL 1 HOUR"))).alias("hour"), "weekly"
    )
    slots = known.groupBy("slot").agg(f.first("usual").alias("usual"), f.first("spread").alias("spread"))
    days = known.groupBy(f.hour("hour").alias("clock")).agg(f.median("attempts").alias("any_day"))
    slotted = coming.withColumn("slot", slot("hour", "weekly")).withColumn("clock", f.hour("hour"))
    joined = slotted.join(slots, "slot", "left").join(days, "clock", "left").crossJoin(level)
    expected = f.coalesce(f.coalesce("usual", "any_day") * f.col("level"), f.lit(0.0))
    margin = f.lit(_BAND) * f.coalesce("spread", f.lit(0.0))
    return joined.select(
        "hour",
        expected.alias("expected"),
        f.greatest(expected - margin, f.lit(0.0)).alias("low"),
        (expected + margin).alias("high"),
    ).orderBy("hour")


def slot(hour: str, weekly: str) -> Column:
    """The hour of the week, 0 is Monday 00:00 UTC; if `weekly` is false, that of any working day or of any week-end."""
    kind = f.when(f.weekday(hour) >= _SATURDAY, _SATURDAY).otherwise(0)
    day = f.when(f.col(weekly), f.weekday(hour)).otherwise(kind)
    return day * 24 + f.hour(hour)
