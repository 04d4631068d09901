"""weights — the cost of each partition id, for a fairer division of leaves among workers

Owns: the weight of an id: the seconds that its tries took.
Guarantees: pure; the heaviest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def weights(tries: DataFrame) -> DataFrame:
    """Rows: partid, attempts, seconds, share. share: of the seconds of all ids, 0 to 1."""
    counted = tries.groupBy("partid").agg(f.sum("attempts").alias("attempts"), f.sum("micros").alias("micros"))
    # Whole numbers are added, so that no order of the rows changes a figure.
    whole = f.sum("micros").over(Window.partitionBy())
    figures = {"seconds": f.col("micros") / 1_000_000, "share": f.try_divide(f.col("micros"), whole)}
    return counted.withColumns(figures).drop("micros").orderBy(f.desc("seconds"), "partid")
