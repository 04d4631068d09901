"""verify — checks that the lake holds exactly PostgreSQL's rows of a day

Owns: reading the day again from PostgreSQL and from the lake with Spark, and comparing rows and content.
Guarantees: a day is verified only if both sides have the same number of rows and the same sum of the rows' hashes over
    all columns, NULLs included, whatever the division into portions and files. Quarantined rows are counted on both
    sides.
Raises: LakeFault, PartitionDropped, DatabaseUnavailable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from scripts.analytics.export import day
from scripts.analytics.lake import days, spark
from scripts.analytics.lake.faults import LakeFault
from scripts.analytics.source import quarantine, source
from scripts.analytics.source.columns import HISTORIES
from scripts.analytics.spark_errors import understood
from shared.errors import PillarboxError
from shared.how_many import how_many

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from scripts.analytics.lake.catalog import Lake
    from scripts.analytics.lake.days import LakeDay
    from scripts.analytics.source.columns import History
    from scripts.analytics.source.portions import Leaf


@dataclass(frozen=True, slots=True)
class Content:
    """Rows and the sum of their hashes."""

    rows: int
    digest: int


def content(frame: DataFrame, history: History) -> Content:
    """One side, counted by Spark."""
    columns = sorted(history.kinds)
    # xxhash64 passes over NULL, so a NULL is hashed as a mark of its own.
    hashed = f.xxhash64(*columns, *(f.isnull(name) for name in columns))
    rows = frame.agg(f.count("*").alias("rows"), f.sum(hashed.cast("decimal(20,0)")).alias("digest")).collect()
    return Content(rows[0].rows, int(rows[0].digest or 0))


def fault(session: SparkSession, conninfo: str, lake: Lake, leaf: Leaf, known: LakeDay) -> str | None:
    """The reason not to drop a day; None if the lake has exactly the same rows."""
    history = HISTORIES[known.table]
    now = day.sums(conninfo, history, leaf.day)
    if now != known.fingerprint:
        rows = f"PostgreSQL has {how_many(now.rows, 'row')}, the lake {known.fingerprint.rows}"
        return f"{rows}, or their sums differ: export it again"
    try:
        with understood():
            there = content(spark.frame(session, lake, known.table, None, leaf.day, leaf.day), history)
            held = source.frame(session, conninfo, known.table, None, leaf.day, leaf.day, kept=True)
            here = content(held, history)
    except LakeFault as damaged:
        return str(damaged)
    except PillarboxError as error:
        return f"the day cannot be read ({error}); restore its files, or export it again with --again"
    if here != there:
        return f"the files hold {how_many(there.rows, 'row')}, PostgreSQL {here.rows}, or their content differs"
    aside = sum(known.quarantined.values())
    if here.rows + aside != known.fingerprint.rows:
        bad = known.fingerprint.rows - here.rows
        return f"the lake's quarantine has {how_many(aside, 'row')}, but {bad} of PostgreSQL's belong there"
    return _quarantine_fault(lake, known, aside)


def _quarantine_fault(lake: Lake, known: LakeDay, aside: int) -> str | None:
    """What the quarantine lacks of a day."""
    if not aside:
        return None
    rows = days.rows(lake.needed(quarantine.TABLE), days.of(known.day, quarantine.INSTANT), ("history",))
    kept = rows["history"].to_pylist().count(known.table)
    return None if kept == aside else f"the quarantine has {how_many(kept, 'row')} of this day, expected {aside}"
