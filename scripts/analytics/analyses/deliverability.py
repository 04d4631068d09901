"""deliverability — the outcomes of tries, by destination, sender, transport or source address

Owns: the counts of outcomes and the shares made of them.
Guarantees: pure; most attempts first, equals by name. attempts = delivered + deferred + failed + lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def deliverability(rollup: DataFrame, by: str) -> DataFrame:
    """For each value of `by`: attempts, delivered, deferred, failed, lost, delivered_share, first_share.

    rollup: tries, destinations or senders. delivered_share: delivered of all attempts, 0 to 1. first_share: delivered
    of the first tries; NULL where there was none in this time. lost: the lease ran out without a result.
    """
    first = f.col("step") == 1
    counted = rollup.groupBy(by).agg(
        f.sum("attempts").alias("attempts"),
        _sum(f.col("outcome") == "delivered").alias("delivered"),
        _sum(f.col("outcome") == "deferred").alias("deferred"),
        _sum(f.col("outcome") == "failed").alias("failed"),
        _sum(f.col("outcome") == "lease_expired").alias("lost"),
        _sum(first & (f.col("outcome") == "delivered")).alias("at_first"),
        _sum(first).alias("first"),
    )
    shares = counted.withColumns(
        {
            "delivered_share": f.col("delivered") / f.col("attempts"),
            "first_share": f.try_divide("at_first", "first"),
        }
    )
    return shares.drop("at_first", "first").orderBy(f.desc("attempts"), by)


def _sum(condition: Column) -> Column:
    return f.sum(f.when(condition, f.col("attempts")).otherwise(0))
