"""orphans — finds bodies without rows, rows without bodies, and attempts without recipients

Owns: the three anti-joins on Spark, the second check of their findings, and the repairs.
Guarantees: PostgreSQL only reads ids, in one pass over each table. Spark's findings are looked up again by key before
    they count as orphans, because the tables were read one after the other. The functions that repair check a third
    time, under a lock: bodies go to the sweep, recipients without body are held with the reason, and attempts without
    recipient are only reported, because history is never changed.
Bugs: attempts older than the oldest day of the archive are left out: their recipients may have been dropped with it.
Raises: DatabaseUnavailable.
See: sql/schema/10_orphan.sql.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from scripts.analytics.source import copying, source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH: Final = 1000  # ids in one statement


@dataclass(slots=True)
class Orphans:
    """The findings, and the numbers repaired."""

    bodies: list[str] = field(default_factory=list)
    recipients: list[int] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    released: int = 0
    held: int = 0


def find(spark: SparkSession, conninfo: str) -> Orphans:
    """Find orphans without changing anything."""
    with copying.session(conninfo) as session:
        # Bodies first, then recipients: a body that arrives in between is not checked.
        idle = _ids(spark, copying.listing(session, "analytics_bodies"), {"body": pa.string()})
        queued = _ids(
            spark, copying.listing(session, "analytics_recipients"), {"id": pa.int64(), "body": pa.string()}
        ).cache()
        bodies = _ids(spark, copying.listing(session, "analytics_all_bodies"), {"body": pa.string()})
        unneeded = [row.body for row in idle.join(queued, "body", "left_anti").collect()]
        bodiless = [row.id for row in queued.join(bodies, "body", "left_anti").collect()]
        unknown = _attempts(spark, conninfo, queued)
        return Orphans(
            _again(session, "analytics_unneeded", unneeded),
            _again(session, "analytics_bodiless", bodiless),
            _again(session, "analytics_unknown_recipients", unknown),
        )


def mend(conninfo: str, found: Orphans) -> Orphans:
    """Give bodies to the sweep and hold recipients without body; sets the numbers in `found`."""
    with copying.session(conninfo, read_only=False) as session:
        found.released = len(_again(session, "analytics_orphans_release", found.bodies))
        found.held = len(_again(session, "analytics_orphans_hold", found.recipients))
    return found


def _attempts(spark: SparkSession, conninfo: str, queued: DataFrame) -> list[int]:
    """Recipients that are in attempts but neither in the queue nor in the archive."""
    with copying.session(conninfo) as session:
        days = [row.day for row in copying.rows(session, "analytics_days", table="archive")]
    if not days:
        return []
    tried = source.frame(spark, conninfo, "attempts", ["queue__id"], since=days[0]).distinct()
    finished = source.frame(spark, conninfo, "archive", ["id"])
    return [
        row.queue__id
        for row in tried.join(finished, tried.queue__id == finished.id, "left_anti")
        .join(queued, tried.queue__id == queued.id, "left_anti")
        .collect()
    ]


def _ids(spark: SparkSession, csv: memoryview, columns: dict[str, pa.DataType]) -> DataFrame:
    from pyarrow import csv as reader  # noqa: PLC0415 - csv is a parameter

    schema = pa.schema(list(columns.items()))
    if not len(csv):
        return spark.createDataFrame(schema.empty_table())
    table = reader.read_csv(
        pa.BufferReader(csv),
        reader.ReadOptions(column_names=schema.names),
        convert_options=reader.ConvertOptions(column_types=schema),
    )
    return spark.createDataFrame(table)


def _again(session: copying.Session, query: str, ids: list[Any]) -> list[Any]:
    """Run the query for these ids, a thousand at a time."""
    found = []
    for start in range(0, len(ids), _BATCH):
        found += [row.id for row in copying.rows(session, query, ids=ids[start : start + _BATCH])]
    return found
