"""counting — the small tables that the analyses begin with, counted once and kept for the block

Owns: the list of tables, and keeping them in Spark's memory.
Guarantees: each is counted once, with Spark's settings for many rows; a lost worker's part is counted again by Spark.
    The memory is always released at the end.
Raises: LakeFault, PillarboxError.
See: docs/explanation/analytics.md, "Report".
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from scripts.analytics.report import count_archive, count_attempts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame


def tables(attempts: DataFrame, archive: DataFrame, top: int) -> dict[str, DataFrame]:
    """Each table, by its name, to be counted when it is asked for."""
    return count_attempts.tables(attempts) | count_archive.tables(archive, top)


def derived(found: dict[str, DataFrame]) -> dict[str, DataFrame]:
    """The tables with those that are made of others: hours and paces in place of `by_hour`."""
    hours = found["by_hour"]
    rest = {name: frame for name, frame in found.items() if name != "by_hour"}
    return rest | {"hours": count_attempts.hourly(hours), "paces": count_attempts.paces(hours)}


@contextmanager
def kept(
    found: dict[str, DataFrame], progress: Callable[[int], object] = lambda _: None
) -> Iterator[dict[str, DataFrame]]:
    """The tables counted, and in memory for the block; `progress` is called with the number of those that are done."""
    # One partition: they are small, and the steps of an analysis then need no shuffle.
    held = {name: frame.coalesce(1).persist() for name, frame in found.items()}
    try:
        for done, frame in enumerate(held.values(), 1):
            frame.count()
            progress(done)
        yield derived(held)
    finally:
        for frame in held.values():
            frame.unpersist()
