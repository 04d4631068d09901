"""scan — reads the rows of the lake's archive that fit a condition, the newest first

Owns: which files and row groups are read, and which of their columns.
Guarantees: days and row groups that the condition excludes by their statistics are not read. Of the others the columns
    of the condition are read, and the other columns only where a row group has a row that fits. No more than a row
    group and the rows asked for are in memory. Only committed files are read, each once, and a page that was damaged on
    disk is an error. Arrow reads the files: there is nothing to join or to group, so Spark, whose start takes longer
    than the search, is not needed.
Raises: LakeFault.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import ArrowException, dataset

from scripts.analytics.lake import files
from scripts.analytics.lake.faults import damaged
from scripts.analytics.source.columns import ARCHIVE
from shared.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from pyarrow.compute import Expression
    from pyiceberg.table import Table


def newest(
    table: Table,
    condition: Expression,
    columns: Sequence[str],
    limit: int,
    *,
    since: date | None = None,
    until: date | None = None,
    tell: Callable[[int, int], None] = lambda _done, _files: None,
) -> list[dict[str, Any]]:
    """At most `limit` rows that fit, of the days from `since` to `until`; `columns`: those that the condition needs.

    tell: called with the numbers of files that were read and of all.
    """
    found = files.of_days(table, ARCHIVE.instant, since, until)
    found.sort(key=lambda file: (str(file.partition[0]), file.file_path), reverse=True)
    system, _ = files.system(table)
    rows, done = ARCHIVE.arrow().empty_table(), 0
    for _, of_day in groupby(found, key=lambda file: file.partition[0]):
        if rows.num_rows >= limit:  # rows of earlier days finished earlier
            break
        for location in files.whole(table, list(of_day)):
            tell(done, len(found))
            try:
                fitting = _read(files.path(location), system, condition, list(columns), limit)
            except (OSError, ArrowException) as error:
                raise damaged(files.path(location), first_line(error)) from None
            rows = _top(pa.concat_tables([rows, *fitting]), limit)
            done += 1
    tell(len(found), len(found))
    return list(rows.to_pylist())


def _read(path: str, system: pa.fs.FileSystem, condition: Expression, columns: list[str], limit: int) -> list[pa.Table]:
    """The rows of one file that fit."""
    form = dataset.ParquetFileFormat(
        default_fragment_scan_options=dataset.ParquetFragmentScanOptions(page_checksum_verification=True)
    )
    schema = ARCHIVE.arrow()
    [whole] = dataset.dataset([path], schema, form, system).get_fragments()
    return [
        _top(group.to_table(schema, filter=condition), limit)
        for group in whole.split_by_row_group(condition, schema)
        if group.to_table(schema, columns, condition).num_rows
    ]


def _top(rows: pa.Table, limit: int) -> pa.Table:
    order = [(ARCHIVE.instant, "descending"), ("id", "descending")]
    return rows if rows.num_rows <= 1 else rows.sort_by(order).slice(0, limit)
