"""compact — merges the small files of a day

Owns: the choice of days, and writing their rows again into fewer files.
Guarantees: the day is overwritten by one commit like that of an export, with the same sums; the new files hold as many
    rows as the old ones. No more than a row group is in memory.
Raises: LakeFault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import ArrowException, parquet

from scripts.analytics.export.portion import Place, write
from scripts.analytics.lake import days, files
from scripts.analytics.lake.faults import LakeFault
from scripts.analytics.lake.storage import local
from shared.errors import first_line
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from scripts.analytics.lake.days import LakeDay

#: Octets of a merged file.
WANTED: Final = 64 << 20


def bundles(found: Sequence[DataFile], wanted: int = WANTED) -> list[list[DataFile]]:
    """The files of a day, neighbours together up to `wanted` octets."""
    groups: list[list[DataFile]] = [[]]
    for file in found:
        if groups[-1] and sum(each.file_size_in_bytes for each in groups[-1]) + file.file_size_in_bytes > wanted:
            groups.append([])
        groups[-1].append(file)
    return groups


def compact_day(table: Table, known: LakeDay, instant: str, at: Callable[[str], None] = lambda _: None) -> bool:
    """Merge the small files of a day; False if there is nothing to merge."""
    found = files.of_days(table, instant, known.day, known.day)
    # By their first instant: so neighbours hold neighbouring rows.
    key = table.schema().find_field(instant).field_id
    found.sort(key=lambda file: file.lower_bounds[key])
    groups = bundles(found)
    if len(groups) >= len(found):
        return False
    place = Place.of(table, known.day)
    written = []
    for group in groups:
        at("merge")
        written.append(write(place, _rows(table, group)))
    days.replace(table, known, instant, written, at)
    return True


def _rows(table: Table, group: Sequence[DataFile]) -> Iterator[pa.Table]:
    """The rows of these files, a row group at a time; each file must have as many as the lake says."""
    for file in group:
        rows = 0
        try:
            with (
                table.io.new_input(file.file_path).open() as source,
                parquet.ParquetFile(source, page_checksum_verification=True) as reader,
            ):
                for number in range(reader.num_row_groups):
                    part = reader.read_row_group(number)
                    rows += part.num_rows
                    yield part
        except (OSError, ArrowException) as error:
            damage = first_line(error)
            raise LakeFault(
                f"{local(file.file_path)}: the file is damaged or missing ({damage}); export its day again with --again"
            ) from None
        if rows != file.record_count:
            raise LakeFault(f"{local(file.file_path)}: has {how_many(rows, 'row')}, expected {file.record_count}")
