"""throttling — the destinations that throttle us, when, and the rate they accept

Owns: the definition of a slowed hour, and the rate derived from it.
Guarantees: pure; the destination that slowed most attempts comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from scripts.analytics.analyses.marks import FEWEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: An hour is slowed when at least FEWEST attempts, and this share of them, were deferred because of our rate.
SHARE: Final = 0.1


def throttling(hours: DataFrame) -> DataFrame:
    """Rows: recipientdomain, slowed_hours, hours, slowed, let_through, calm, last.

    hours: attempts by hour and destination, of those destinations that have a slowed hour. let_through: median
    deliveries in a slowed hour; a rate for this destination should not exceed it. calm: median deliveries in its other
    hours, NULL if there are none. last: the last slowed hour.
    """
    by_hour = hours.groupBy("recipientdomain", "hour").agg(
        *[f.sum(name).alias(name) for name in ("attempts", "delivered", "slowed")]
    )
    marked = by_hour.withColumn(
        "hit", (f.col("slowed") >= FEWEST) & (f.col("slowed") >= f.lit(SHARE) * f.col("attempts"))
    )
    found = marked.groupBy("recipientdomain").agg(
        f.sum(f.col("hit").cast("bigint")).alias("slowed_hours"),
        f.count("*").alias("hours"),
        f.sum(f.when(f.col("hit"), f.col("slowed")).otherwise(0)).alias("slowed"),
        f.median(f.when(f.col("hit"), f.col("delivered"))).alias("let_through"),
        f.median(f.when(~f.col("hit"), f.col("delivered"))).alias("calm"),
        f.max(f.when(f.col("hit"), f.col("hour"))).alias("last"),
    )
    return found.where(f.col("slowed_hours") > 0).orderBy(f.desc("slowed"), "recipientdomain")
