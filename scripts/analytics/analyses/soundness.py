"""soundness — checks the history itself: days without attempts, jumped clocks, impossible values

Owns: the list of faults, each with the number of rows and their treatment.
Guarantees: pure; rows that other figures leave out are counted here.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from scripts.analytics.analyses.marks import UNUSABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def soundness(
    tries: DataFrame, destinations: DataFrame, waits: DataFrame, usual: DataFrame, wordings: DataFrame
) -> DataFrame:
    """Rows: fault, rows, treatment. A fault that did not occur has 0 rows, which shows that it was looked for."""
    found = [
        _count(tries, "attempts", f.lit(True), "attempts read", "all are counted"),
        _count(waits, "recipients", f.lit(True), "finished recipients read", "all are counted"),
        _count(tries, "jumps", f.lit(True), "tries that ended before they began", "counted; add no time"),
        _count(waits, "jumps", f.lit(True), "recipients finished before receipt", "left out of waiting times"),
        _count(
            destinations,
            "attempts",
            f.col("recipientdomain") == UNUSABLE,
            "attempts to an invalid domain",
            f"under {UNUSABLE}",
        ),
        _count(
            wordings, "attempts", f.col("wording").contains("�"), "attempts whose reply is not UTF-8", "octets replaced"
        ),
        _silent(usual),
    ]
    return reduce(lambda one, two: one.unionByName(two), found)


def _count(frame: DataFrame, column: str, condition: object, fault: str, treatment: str) -> DataFrame:
    rows = f.coalesce(f.sum(f.when(condition, f.col(column))), f.lit(0)).cast("bigint")  # type: ignore[arg-type]
    return frame.agg(rows.alias("rows")).select(
        f.lit(fault).alias("fault"), "rows", f.lit(treatment).alias("treatment")
    )


def _silent(usual: DataFrame) -> DataFrame:
    """Days without a row between the first and the last day; the first ten are named."""
    days = usual.groupBy(f.to_date("hour").alias("day")).agg(f.sum("attempts").alias("n")).where(f.col("n") == 0)
    named = f.slice(f.array_sort(f.collect_list(f.col("day").cast("string"))), 1, 10)
    return days.agg(
        f.lit("days without an attempt").alias("fault"),
        f.count("*").cast("bigint").alias("rows"),
        f.concat(f.lit("counted as 0 "), f.array_join(named, ", ")).alias("treatment"),
    )
