"""files — the Parquet files of a lake's days, for engines that read Parquet directly

Owns: the files that a scan names, the refusal of tables that Parquet alone does not describe, and the check that each
    file is whole.
Guarantees: only committed files are named, each once. A day with rows that another engine deleted by delete files is
    refused, because a reader of Parquet would still see them. A file that is missing or has another size is a one-line
    error before anything is read.
Raises: LakeFault.
See: https://iceberg.apache.org/spec/#delete-formats.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from pyiceberg.io.pyarrow import PyArrowFileIO

from scripts.analytics.lake import days
from scripts.analytics.lake.faults import LakeFault, damaged
from scripts.analytics.lake.storage import local
from shared.how_many import how_many

if TYPE_CHECKING:
    from pyarrow import fs
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

_EPOCH: Final = date(1970, 1, 1)


def of_days(table: Table, instant: str, since: date | None = None, until: date | None = None) -> list[DataFile]:
    """The files of the days from `since` to `until`, both included."""
    condition = "true" if since is None or until is None else days.between(since, until, instant)
    found = []
    for task in days.tasks(table, condition):
        if task.delete_files:
            raise LakeFault(
                f"{task.file.file_path}: rows of it were deleted by delete files, which Parquet alone does not show; "
                "rewrite the table's data files with the engine that deleted them"
            )
        found.append(task.file)
    return sorted(found, key=lambda file: file.file_path)


def sizes(table: Table) -> dict[date, int]:
    """The octets of each day's files."""
    found: dict[date, int] = {}
    for task in days.tasks(table):
        day = _EPOCH + timedelta(days=task.file.partition[0])
        found[day] = found.get(day, 0) + task.file.file_size_in_bytes
    return found


def whole(table: Table, found: list[DataFile]) -> list[str]:
    """The locations of these files; each must exist with its full length."""
    locations = []
    for file in found:
        try:
            size = len(table.io.new_input(file.file_path))
        except OSError as error:
            reason = error.strerror or "the file is missing"
            raise damaged(local(file.file_path), reason) from None
        if size != file.file_size_in_bytes:
            sizes = f"has {how_many(size, 'octet')}, expected {file.file_size_in_bytes}"
            raise damaged(local(file.file_path), sizes)
        locations.append(file.file_path)
    return locations


def system(table: Table) -> tuple[fs.FileSystem, str]:
    """The file system of a table, and the table's folder there."""
    scheme, netloc, path = PyArrowFileIO.parse_location(table.location())
    return PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, netloc), path


def path(location: str) -> str:
    """The path of a file in its file system."""
    return str(local(location)) if location.startswith(("file:", "/")) else PyArrowFileIO.parse_location(location)[2]
