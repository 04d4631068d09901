"""waiting — percentiles of time in the queue, and of time to deliver

Owns: percentiles by nearest rank over counted values.
Guarantees: pure. A percentile is a value that occurred, to two significant digits (rollup_archive), so at most 5 % off.
    Recipients whose clock jumped are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PERCENTILES: Final = (50, 90, 99)


def waiting(waits: DataFrame, by: str | None = None, result: str | None = None) -> DataFrame:
    """Recipients and p50, p90, p99, longest (seconds) for each value of `by`, or of all (then `by` is "all").

    result: counts only recipients with this result: "success" gives the time to deliver. Most recipients first.
    """
    chosen = waits.where(f.col("seconds").isNotNull())
    if result is not None:
        chosen = chosen.where(f.col("result") == result)
    key = by or "all"
    counted = chosen.groupBy((f.col(by) if by else f.lit("all")).alias(key), "seconds").agg(
        f.sum("recipients").alias("n")
    )
    rising = Window.partitionBy(key).orderBy("seconds").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = counted.withColumn("up_to", f.sum("n").over(rising)).withColumn(
        "of", f.sum("n").over(Window.partitionBy(key))
    )
    return (
        ranked.groupBy(key)
        .agg(
            f.sum("n").alias("recipients"),
            *[_percentile(percent).alias(f"p{percent}") for percent in PERCENTILES],
            f.max("seconds").alias("longest"),
        )
        .orderBy(f.desc("recipients"), key)
    )


def _percentile(percent: int) -> Column:
    return f.min(f.when(f.col("up_to") * 100 >= f.col("of") * percent, f.col("seconds")))
