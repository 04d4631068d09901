"""trends — how destinations' providers take mail from our source addresses, day by day

Owns: the comparison of the last week with the time before, and the days of a new source address (warm-up).
Guarantees: pure; whatever the division of rows. A trend is named only where chance is an unlikely cause.
See: the two-proportion z-test, NIST/SEMATECH e-Handbook of Statistical Methods, section 7.3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

from scripts.analytics.analyses.marks import UNKNOWN
from scripts.analytics.analyses.volume import UNUSUAL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The least change of the share delivered that is a trend: below, it is of no consequence.
LEAST: Final = 0.01
_LATELY: Final = "INTERVAL 6 DAYS"  # before the last day


def reputation(days: DataFrame) -> DataFrame:
    """Rows: provider, source, attempts, share, before, change, blamed_share, blamed_before, score, trend.

    days: attempts by day, provider, source and outcome, with `blamed`, those refused or deferred for reputation, policy
    or our rate. share: delivered of the attempts of the last seven days, before: of those before. score: of the change,
    as a z-score. trend: "falling", "rising", "steady"; "new" without attempts before. The worst change comes first.
    """
    last = days.agg(f.max("day").alias("last"))
    lately = f.col("day") >= f.col("last") - f.expr(_LATELY)
    counted = days.crossJoin(last).groupBy("provider", "source").agg(*_counts(lately, ""), *_counts(~lately, "_before"))
    share, before = f.col("delivered") / f.col("attempts"), f.try_divide("delivered_before", "attempts_before")
    pooled = (f.col("delivered") + f.col("delivered_before")) / (f.col("attempts") + f.col("attempts_before"))
    spread = f.sqrt(pooled * (1 - pooled) * (1 / f.col("attempts") + f.try_divide(f.lit(1.0), "attempts_before")))
    judged = counted.where(f.col("attempts") > 0).select(
        "provider",
        "source",
        "attempts",
        share.alias("share"),
        before.alias("before"),
        (share - before).alias("change"),
        (f.col("blamed") / f.col("attempts")).alias("blamed_share"),
        f.try_divide("blamed_before", "attempts_before").alias("blamed_before"),
        f.when(before.isNotNull(), f.coalesce(f.try_divide(share - before, spread), f.lit(0.0))).alias("score"),
    )
    certain = (f.abs("score") > UNUSUAL) & (f.abs("change") >= LEAST)
    trend = (
        f.when(f.col("before").isNull(), "new")
        .when(certain, f.when(f.col("change") < 0, "falling").otherwise("rising"))
        .otherwise("steady")
    )
    return judged.withColumn("trend", trend).orderBy(
        f.coalesce("score", f.lit(0.0)), f.desc("attempts"), "provider", "source"
    )


def warmup(days: DataFrame) -> DataFrame:
    """Rows: source, day, number, attempts, growth, share, blamed_share: each day of a source address that is new.

    New: its first attempt is on a later day than the first of all. number: of its day, from 1. growth: attempts divided
    by those of the last day that had some; NULL on the first.
    """
    by_day = days.where(f.col("source") != UNKNOWN).groupBy("source", "day").agg(*_counts(f.lit(True), ""))
    first = days.agg(f.min("day").alias("first"))
    begun = by_day.groupBy("source").agg(f.min("day").alias("begun")).crossJoin(first)
    fresh = by_day.join(begun.where(f.col("begun") > f.col("first")), "source")
    before = f.lag("attempts").over(Window.partitionBy("source").orderBy("day"))
    return fresh.select(
        "source",
        "day",
        (f.timestamp_diff("DAY", f.col("begun"), f.col("day")) + 1).alias("number"),
        "attempts",
        f.try_divide(f.col("attempts").cast("double"), before).alias("growth"),
        (f.col("delivered") / f.col("attempts")).alias("share"),
        (f.col("blamed") / f.col("attempts")).alias("blamed_share"),
    ).orderBy("source", "day")


def _counts(condition: Column, mark: str) -> list[Column]:
    """Attempts, deliveries and blame of the days for which the condition holds."""
    delivered = f.when(condition & (f.col("outcome") == "delivered"), f.col("attempts")).otherwise(0)
    return [
        f.sum(f.when(condition, f.col("attempts")).otherwise(0)).alias(f"attempts{mark}"),
        f.sum(delivered).alias(f"delivered{mark}"),
        f.sum(f.when(condition, f.col("blamed")).otherwise(0)).alias(f"blamed{mark}"),
    ]
