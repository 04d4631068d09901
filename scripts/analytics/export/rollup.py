"""rollup — the small table `rollups`: attempts of an exported day by hour, destination, sender, transport and outcome

Owns: its columns, and counting a day of the lake into it.
Guarantees: a day's sums are those of the day of `attempts` that was counted, so a day that is missing or older is
    counted again. The column `attempts` adds up to the rows of that day.
Raises: LakeFault.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ArrowException, parquet

from scripts.analytics.export.portion import Place, write
from scripts.analytics.lake import days, files
from scripts.analytics.lake.faults import LakeFault
from scripts.analytics.lake.storage import local
from scripts.analytics.source.columns import ATTEMPTS
from shared.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet
    from datetime import date

    from pyiceberg.table import Table

    from scripts.analytics.lake.catalog import Lake
    from scripts.analytics.lake.days import LakeDay

TABLE: Final = "rollups"
INSTANT: Final = "hour"
_KEYS: Final = (INSTANT, "recipientdomain", "senderdomain", "transportid", "source", "outcome")
SCHEMA: Final = pa.schema(
    [(INSTANT, pa.timestamp("us", "UTC"))]
    + [(name, pa.string()) for name in _KEYS[1:]]
    + [("attempts", pa.int64()), ("seconds", pa.float64())]
)


def roll_up(
    lake: Lake, attempts: Table, at: Callable[[str], None] = lambda _: None, again: AbstractSet[date] = frozenset()
) -> int:
    """Count the days of `attempts` that are missing or older here, and those of `again`; their number."""
    table = lake.made(TABLE, SCHEMA, INSTANT)
    counted = 0
    for known in days.every(ATTEMPTS.name, attempts):
        mine = days.known(TABLE, table, known.day)
        current = mine is not None and (mine.fingerprint, mine.quarantined) == (known.fingerprint, known.quarantined)
        if not current or known.day in again:
            at("rollup")
            made = replace(known, table=TABLE, version=1 if mine is None else mine.version + 1, dropped=None)
            found = _counted(attempts, known)
            written = [write(Place.of(table, known.day), [found])] if found.num_rows else []
            days.replace(table, made, INSTANT, written, at)
            table.refresh()
            counted += 1
    return counted


def _counted(attempts: Table, known: LakeDay) -> pa.Table:
    """One day of the lake, counted a file at a time."""
    parts = [SCHEMA.empty_table()]
    for file in files.of_days(attempts, ATTEMPTS.instant, known.day, known.day):
        columns = [ATTEMPTS.instant, *_KEYS[1:], "duration"]
        try:
            with attempts.io.new_input(file.file_path).open() as source:
                parts.append(_grouped(_keyed(parquet.read_table(source, columns=columns, partitioning=None))))
        except (OSError, ArrowException) as error:
            raise LakeFault(
                f"{local(file.file_path)}: {first_line(error)}; export its day again with --again"
            ) from None
    return _grouped(pa.concat_tables(parts))


def _keyed(rows: pa.Table) -> pa.Table:
    hour = pc.floor_temporal(rows[ATTEMPTS.instant], unit="hour").cast(SCHEMA.field(INSTANT).type)
    seconds = pc.max_element_wise(pc.fill_null(rows["duration"], 0.0), 0.0)
    keys = [rows[name].cast(pa.string()) for name in _KEYS[1:]]
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    return pa.table([hour, *keys, ones, seconds], schema=SCHEMA)


def _grouped(rows: pa.Table) -> pa.Table:
    found = rows.group_by(list(_KEYS), use_threads=False).aggregate([("attempts", "sum"), ("seconds", "sum")])
    return found.rename_columns({"attempts_sum": "attempts", "seconds_sum": "seconds"}).select(SCHEMA.names)
