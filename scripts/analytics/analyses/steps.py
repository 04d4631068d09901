"""steps — the deliveries of each step of the retry schedule

Owns: the counts by step, and the share of all deliveries made by each step.
Guarantees: pure; in the order of the steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from scripts.analytics.analyses.deliverability import deliverability

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def steps(tries: DataFrame) -> DataFrame:
    """For each step, 1 being the first try: attempts, outcomes, delivered_share, and reached.

    reached: deliveries in this and earlier steps as a share of all deliveries, 0 to 1. A step with a small
    delivered_share after which `reached` hardly grows costs connections and delivers little.
    """
    so_far = Window.orderBy("step").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    everything = Window.partitionBy()
    counted = deliverability(tries, "step").drop("first_share")
    reached = f.try_divide(f.sum("delivered").over(so_far), f.sum("delivered").over(everything))
    return counted.withColumn("reached", reached).orderBy("step")
