"""capacity — a forecast of history's day partitions and of the disk that they take

Owns: the trend of a day's octets, and the sum over the days to come.
Guarantees: pure; as if nothing was removed. The trend is a straight line through the days, from two weeks on; before
    that the average day is taken. A day never takes less than nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AHEAD: Final = (7, 30, 90, 365)  # days
_ENOUGH: Final = 14  # days from which a trend is taken


def capacity(sizes: DataFrame) -> DataFrame:
    """Rows: history, day, a_day, partitions, octets: the expected end of so many days ahead, today in the first row.

    sizes: history (a table's name), day, octets. a_day: octets that the last of these days takes; partitions: days that
    are kept; octets: of all of them together.
    """
    numbered = sizes.withColumn("n", f.unix_date("day"))
    known = numbered.groupBy("history").agg(
        f.max("n").alias("last"),
        f.count("*").alias("days"),
        f.sum("octets").alias("sum"),
        f.avg("octets").alias("mean"),
        f.avg("n").alias("middle"),
        f.when(f.count("*") >= _ENOUGH, f.regr_slope(f.col("octets").cast("double"), f.col("n").cast("double")))
        .otherwise(0.0)
        .alias("slope"),
    )
    ahead = known.withColumn("ahead", f.explode(f.array(*[f.lit(days) for days in (0, *AHEAD)])))
    each = ahead.withColumn("step", f.explode(f.sequence(f.lit(0), "ahead")))
    line = f.col("mean") + f.col("slope") * (f.col("last") + f.col("step") - f.col("middle"))
    taken = each.withColumn("a_day", f.greatest(line, f.lit(0.0)))
    total = taken.groupBy("history", "ahead", "last", "days", "sum").agg(
        f.sum(f.when(f.col("step") > 0, f.col("a_day")).otherwise(0.0)).alias("added"),
        f.max_by("a_day", "step").alias("a_day"),
    )
    return total.select(
        "history",
        f.date_from_unix_date(f.col("last") + f.col("ahead")).cast("timestamp").alias("day"),
        f.round("a_day").cast("bigint").alias("a_day"),
        (f.col("days") + f.col("ahead")).alias("partitions"),
        (f.col("sum") + f.round("added")).cast("bigint").alias("octets"),
    ).orderBy("history", "day")
