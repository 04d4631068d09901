"""compact — merges the small files of a day and class

Owns: the choice of files, and writing their rows again in the order of their instants.
Guarantees: like an export, it writes the day's next version, commits it by its manifest, and keeps the old files until
    then. The old files are checked against their checksums, the new ones hold as many rows, and the fingerprint stays.
Raises: LakeFault.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import parquet

from scripts.analytics import manifest
from scripts.analytics.export.day import clear, settle
from scripts.analytics.export.portion import write
from scripts.analytics.manifest import LakeFault
from scripts.analytics.source.columns import HISTORIES
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Callable

    from scripts.analytics.manifest import LakeFile, Manifest
    from scripts.analytics.runner import Runner

#: Size limit of a merged file in octets; a worker holds it in memory, unpacked to perhaps ten times as much.
WANTED: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files of one day and class that become one."""

    lake: Path
    table: str
    files: tuple[LakeFile, ...]
    target: Path


def bundles(lake: Path, known: Manifest, wanted: int = WANTED) -> list[Bundle]:
    """The files of a day to merge: neighbours of a class, up to `wanted` octets together."""
    of_class: dict[Path, list[list[LakeFile]]] = defaultdict(lambda: [[]])
    for entry in known.files:
        groups = of_class[Path(entry.path).parent]
        if groups[-1] and sum(each.octets for each in groups[-1]) + entry.octets > wanted:
            groups.append([])
        groups[-1].append(entry)
    return [
        Bundle(lake, known.table, tuple(group), folder / f"v{known.version + 1:04}-{number:05}.parquet")
        for folder, groups in sorted(of_class.items())
        for number, group in enumerate(groups)
        if len(group) > 1
    ]


def write_bundle(bundle: Bundle) -> LakeFile:
    """Write one file of several, below the staging folder."""
    schema = HISTORIES[bundle.table].arrow()
    tables = []
    for entry in bundle.files:
        manifest.check(bundle.lake, entry)
        found = parquet.read_table(bundle.lake / entry.path, partitioning=None)
        for field in schema:
            if field.name not in found.column_names:
                found = found.append_column(field, pa.nulls(found.num_rows, field.type))
        tables.append(found.select(schema.names))
    table = pa.concat_tables(tables).sort_by(HISTORIES[bundle.table].instant)
    staging = bundle.lake / manifest.STAGING / f"compact-{bundle.table}"
    made = write(staging, bundle.target, table)
    if made.rows != sum(entry.rows for entry in bundle.files):
        raise LakeFault(
            f"{bundle.target}: has {how_many(made.rows, 'row')}, but the files merged into it have another number"
        )
    return made


def compact_day(
    lake: Path, known: Manifest, runner: Runner, tell: Callable[[int], None], at: Callable[[str], None]
) -> Manifest | None:
    """Merge the small files of a day; None if there is nothing to merge."""
    found = bundles(lake, known)
    if not found:
        return None
    staging = lake / manifest.STAGING / f"compact-{known.table}"
    clear(staging)
    written = runner.run(write_bundle, found, tell)
    replaced = {entry for bundle in found for entry in bundle.files}
    kept = tuple(entry for entry in known.files if entry not in replaced)
    made = replace(
        known, version=known.version + 1, files=tuple(sorted((*kept, *written), key=lambda entry: entry.path))
    )
    settle(lake, staging, made, at)
    return made
