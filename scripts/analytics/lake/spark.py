"""spark — a table of the lake as a Spark DataFrame over its Parquet files

Owns: the choice of files for Spark, and the schema that they are read with.
Guarantees: only committed files are read, each once; columns missing in an older file are NULL; a page that was damaged
    on disk is an error, by its checksum. Nothing but DataFrames is used, so it works over Spark Connect as well.
Raises: LakeFault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.analytics.lake import files
from scripts.analytics.source.columns import HISTORIES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from pyspark.sql import DataFrame, SparkSession

    from scripts.analytics.lake.catalog import Lake


def frame(
    spark: SparkSession,
    lake: Lake,
    name: str,
    columns: Sequence[str] | None = None,
    since: date | None = None,
    until: date | None = None,
) -> DataFrame:
    """The rows of `attempts`, `archive` or `audit` in the lake, of these days, with these columns."""
    history = HISTORIES[name]
    table = lake.needed(name)
    found = files.whole(table, files.of_days(table, history.instant, since, until))
    schema = history.spark(columns)
    if not found:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("parquet.page.verify-checksum.enabled", "true").parquet(*found)
