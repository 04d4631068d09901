"""lake — reads exported days of attempts and archive from Parquet, by their manifests

Owns: the choice of files for a reader, the check that they exist, and their schema.
Guarantees: only committed files are read, each once; columns missing in an older file are NULL; a file that is missing
    or has another size is a one-line error before Spark reads it.
Raises: LakeFault.
See: scripts/analytics/manifest.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.analytics import manifest
from scripts.analytics.manifest import LakeFault
from scripts.analytics.source.columns import HISTORIES
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def days(lake: Path, table: str, since: date | None = None, until: date | None = None) -> list[manifest.Manifest]:
    """The manifests of the days from `since` to `until`, both included."""
    if not (lake / manifest.MANIFESTS).is_dir():
        raise LakeFault(f"{lake}: not a Pillarbox lake; `pillarbox analytics export --lake {lake}` creates one")
    found = manifest.every(lake, table)
    return [each for each in found if (since is None or each.day >= since) and (until is None or each.day <= until)]


def files(lake: Path, found: Sequence[manifest.Manifest]) -> list[str]:
    """The paths of the files of these days; each must exist with its full length."""
    paths = []
    for entry in (entry for each in found for entry in each.files):
        path = lake / entry.path
        try:
            size = path.stat().st_size
        except OSError as error:
            raise LakeFault(f"{path}: {error.strerror}; restore it, or export the day again") from None
        if size != entry.octets:
            raise LakeFault(
                f"{path}: has {how_many(size, 'octet')}, expected {entry.octets}; restore it, or export the day again"
            )
        paths.append(str(path))
    return paths


def frame(
    spark: SparkSession,
    lake: Path,
    table: str,
    columns: Sequence[str] | None = None,
    since: date | None = None,
    until: date | None = None,
) -> DataFrame:
    """The rows of `attempts` or `archive` in the lake, of these days, with these columns."""
    schema = HISTORIES[table].spark(columns)
    paths = files(lake, days(lake, table, since, until))
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*paths)
