"""unreferenced — lets snapshots expire, and finds files that no snapshot of a table needs

Owns: the list of what a table's metadata names, and the files beside it.
Guarantees: a file that the table's metadata or one of its snapshots names is never listed, nor a file younger than
    `older` (it may belong to a commit that has not ended). Expired are snapshots only, by the library; their files are
    found here like those of killed runs.
Raises: LakeFault.
See: https://iceberg.apache.org/docs/latest/maintenance/#delete-orphan-files.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyarrow import fs

from scripts.analytics.lake import files
from scripts.analytics.lake.faults import reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.table import Table


def expire(table: Table, keep: timedelta) -> int:
    """Let the snapshots expire that are older than `keep`, except the newest; their number."""
    before = len(table.metadata.snapshots)
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC) - keep).commit()
    table.refresh()
    return before - len(table.metadata.snapshots)


def forget_deleted(table: Table) -> None:
    """Leave out what the newest snapshot says of files it deleted: the least and the greatest values of their columns.

    An empty append keeps only manifests with files that are there.
    """
    newest = table.current_snapshot()
    with reading(f"{table.name()[-1]}: the metadata"):
        if newest is None or all(
            each.has_added_files() or each.has_existing_files() for each in newest.manifests(table.io)
        ):
            return
    with table.transaction() as change, change.update_snapshot().fast_append():
        pass
    table.refresh()


def listed(table: Table, older: timedelta) -> list[str]:
    """The locations of files below the table's that nothing names and that are older than `older`."""
    needed = named(table)
    limit = datetime.now(UTC) - older
    system, root = files.system(table)
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    return sorted(
        info.path
        for info in system.get_file_info(selector)
        if info.type == fs.FileType.File and info.path not in needed and info.mtime <= limit
    )


def remove(table: Table, paths: list[str], at: Callable[[str], None] = lambda _: None) -> None:
    """Remove these files."""
    system, _ = files.system(table)
    for path in paths:
        at("remove")
        system.delete_file(path)


def named(table: Table) -> set[str]:
    """The paths of all files that the table's metadata names, by way of every snapshot."""
    with reading(f"{table.name()[-1]}: the metadata"):
        return {files.path(location) for location in _locations(table)}


def _locations(table: Table) -> set[str]:
    named = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    named |= {entry.statistics_path for entry in table.metadata.statistics}
    seen = set()
    for snapshot in table.metadata.snapshots:
        named.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                named |= {entry.data_file.file_path for entry in entries}
    return named | seen
