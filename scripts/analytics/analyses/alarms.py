"""alarms — what is unusual on the last two days: hours by volume, days of a provider or a source address by deliveries

Owns: the choice of what is worth an alarm.
Guarantees: pure. A share is judged against the median of its days, at least ENOUGH beside it, and a day needs FEWEST
    attempts: few have any share by chance. Only the last two days are looked at, so reports of long periods repeat
    nothing that is past.
See: scripts/analytics/analyses/volume.py, the score.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from scripts.analytics.analyses.marks import NO_HOST, UNKNOWN
from scripts.analytics.analyses.volume import ENOUGH, UNUSUAL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FEWEST: Final = 100  # attempts of a day
_LEAST: Final = 0.01  # the spread of a share is at least this
_NORMAL: Final = 1.4826  # as in volume.py
_RECENT: Final = "INTERVAL 1 DAY"  # before the last day


def alarms(days: DataFrame, volume: DataFrame) -> DataFrame:
    """Rows: kind, subject, at, value, usual, score; the highest score comes first.

    days: as in trends.py; volume: the result of `usual`. kind "volume": attempts in the hour `at`; "provider" and
    "source": the share delivered on the day `at`, if it is lower than usual.
    """
    last = volume.agg(f.date_trunc("day", f.max("hour")).alias("last"))
    hours = volume.where("unusual").select(
        f.lit("volume").alias("kind"),
        f.lit("all").alias("subject"),
        f.col("hour").alias("at"),
        f.col("attempts").cast("double").alias("value"),
        f.col("usual").cast("double").alias("usual"),
        "score",
    )
    found = [hours, *(_shares(days, name, unnamed) for name, unnamed in (("provider", NO_HOST), ("source", UNKNOWN)))]
    together = reduce(lambda one, two: one.unionByName(two), found)
    recent = together.crossJoin(last).where(f.col("at") >= f.col("last") - f.expr(_RECENT)).drop("last")
    return recent.orderBy(f.desc(f.abs("score")), "kind", "subject", "at")


def _shares(days: DataFrame, name: str, unnamed: str) -> DataFrame:
    delivered = f.when(f.col("outcome") == "delivered", f.col("attempts")).otherwise(0)
    by_day = (
        days.where(f.col(name) != unnamed)
        .groupBy(name, "day")
        .agg(f.sum("attempts").alias("attempts"), f.sum(delivered).alias("delivered"))
        .where(f.col("attempts") >= FEWEST)
        .withColumn("value", f.col("delivered") / f.col("attempts"))
    )
    middle = by_day.groupBy(name).agg(f.median("value").alias("usual"), f.count("*").alias("seen"))
    away = by_day.join(middle.where(f.col("seen") > ENOUGH), name)
    wide = away.groupBy(name).agg(f.median(f.abs(f.col("value") - f.col("usual"))).alias("middle"))
    scored = away.join(wide, name).withColumn("score", (f.col("value") - f.col("usual")) / _spread())
    low = scored.where(f.col("score") < -UNUSUAL)
    return low.select(
        f.lit(name).alias("kind"), f.col(name).alias("subject"), f.col("day").alias("at"), "value", "usual", "score"
    )


def _spread() -> Column:
    """Of days, as far as it shows, and at least what chance makes of so many attempts."""
    chance = f.sqrt(f.col("usual") * (1 - f.col("usual")) / f.col("attempts"))
    return f.greatest(f.lit(_NORMAL) * f.col("middle"), chance, f.lit(_LEAST))
