"""counting — the small tables that the analyses begin with, counted once and kept for the block

History is counted in a few groups, and the tables are made of these groups. So its rows are read fewer times than there
are tables, and a text is made normal once for each group. Meanwhile a thread plans what is made of the tables: Spark
does that for the first time and on one core, which takes it some four seconds.

Owns: the list of groups and tables, and keeping them in Spark's memory.
Guarantees: each is counted once, with Spark's settings for many rows; a lost worker's part is counted again by Spark.
    The memory is always released at the end.
Raises: LakeFault, PillarboxError.
See: docs/explanation/analytics.md, "Report".
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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
def kept[P](
    attempts: DataFrame,
    archive: DataFrame,
    top: int,
    plan: Callable[[dict[str, DataFrame]], P],
    progress: Callable[[int], object] = lambda _: None,
) -> Iterator[P]:
    """What `plan` makes of the tables, which are counted and in memory for the block.

    plan: gets the tables before they are counted, in another thread, and must not read them. progress: gets how many of
    COUNTED are done.
    """
    held: list[DataFrame] = []

    def hold(frame: DataFrame) -> None:
        held.append(frame.persist())
        frame.count()
        progress(len(held))

    groups = grouped(attempts, archive)

    def planned() -> tuple[list[DataFrame], P]:
        # One partition: they are small, and the steps of an analysis then need no shuffle.
        found = {name: frame.coalesce(1) for name, frame in tables(groups, archive, top).items()}
        return list(found.values()), plan(derived(found))

    try:
        with ThreadPoolExecutor(1) as beside:
            rest = beside.submit(planned)
            for group in groups.values():
                hold(group)
            found, plans = rest.result()
        for table in found:
            hold(table)
        yield plans
    finally:
        for frame in held:
            frame.unpersist()
