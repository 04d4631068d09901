"""counting — the small tables that the analyses begin with, counted once and kept for the block

History is counted in a few groups, and the tables are made of these groups. So its rows are read fewer times than there
are tables, and a text is made normal once for each group.

Owns: the list of groups and tables, and keeping them in Spark's memory.
Guarantees: each is counted once, with Spark's settings for many rows; a lost worker's part is counted again by Spark.
    The memory is always released at the end.
Raises: LakeFault, PillarboxError.
See: docs/explanation/analytics.md, "Report".
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from scripts.analytics.report import count_archive, count_attempts

#: The number of groups and tables that are counted.
COUNTED: Final = 17

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame


def grouped(attempts: DataFrame, archive: DataFrame) -> dict[str, DataFrame]:
    """The groups, by name, to be counted when one is asked for."""
    return count_attempts.grouped(attempts) | count_archive.grouped(archive)


def tables(groups: dict[str, DataFrame], archive: DataFrame, top: int) -> dict[str, DataFrame]:
    """The tables of these groups, by name."""
    return count_attempts.tables(groups) | count_archive.tables(groups, archive, top)


def derived(found: dict[str, DataFrame]) -> dict[str, DataFrame]:
    """The tables with those that are made of others: hours and paces in place of `by_hour`."""
    hours = found["by_hour"]
    rest = {name: frame for name, frame in found.items() if name != "by_hour"}
    return rest | {"hours": count_attempts.hourly(hours), "paces": count_attempts.paces(hours)}


@contextmanager
def kept(
    attempts: DataFrame, archive: DataFrame, top: int, progress: Callable[[int], object] = lambda _: None
) -> Iterator[dict[str, DataFrame]]:
    """The tables, counted and in memory for the block; `progress` gets how many of COUNTED are done."""
    held: list[DataFrame] = []

    def hold(frame: DataFrame) -> DataFrame:
        held.append(frame.persist())
        frame.count()
        progress(len(held))
        return frame

    try:
        groups = {name: hold(frame) for name, frame in grouped(attempts, archive).items()}
        # One partition: they are small, and the steps of an analysis then need no shuffle.
        found = {name: hold(frame.coalesce(1)) for name, frame in tables(groups, archive, top).items()}
        yield derived(found)
    finally:
        for frame in held:
            frame.unpersist()
