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
    counted = tries.groupBy("partid").agg(f.sum("attempts").alias("attempts"), f.sum("seconds").alias("seconds"))
    whole = f.sum("seconds").over(Window.partitionBy())
    return counted.withColumn("share", f.try_divide(f.col("seconds"), whole)).orderBy(f.desc("seconds"), "partid")
