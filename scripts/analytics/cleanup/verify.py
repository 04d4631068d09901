"""verify — checks that the lake holds exactly PostgreSQL's rows of a day

Owns: reading the day again from PostgreSQL and from the lake, and comparing rows, sums and content.
Guarantees: a day is verified only if its files are unchanged (SHA-256), hold the manifest's number of rows, and have
    the digest of PostgreSQL's present rows. Quarantined rows are counted on both sides, and their files must exist.
Raises: LakeFault, PartitionDropped, DatabaseUnavailable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyarrow import ArrowException, parquet

from scripts.analytics import manifest
from scripts.analytics.export import day, quarantine
from scripts.analytics.manifest import LakeFault
from scripts.analytics.source import digest, portion, portions
from scripts.analytics.source.columns import HISTORIES
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scripts.analytics.manifest import LakeFile, Manifest
    from scripts.analytics.runner import Runner
    from scripts.analytics.source.portions import Leaf, Portion


@dataclass(frozen=True, slots=True)
class Content:
    """Rows, their digest, and how many are in the quarantine."""

    rows: int
    digest: int
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """A portion to be read from PostgreSQL, or a file to be read from the lake."""

    conninfo: str
    lake: Path
    table: str
    source: Portion | LakeFile


def content(reading: Reading) -> Content:
    """Read one side's part again."""
    history = HISTORIES[reading.table]
    names = list(history.kinds)
    if isinstance(reading.source, portions.Portion):
        table = portion.read(reading.conninfo, history, reading.source, names)
        kept, bad = quarantine.divide(table, history)
        return Content(kept.num_rows, digest.of_table(kept), bad.num_rows)
    manifest.check(reading.lake, reading.source)
    file = reading.lake / reading.source.path
    try:
        # Only the file: read_table() would add columns for folders named day=….
        table = parquet.ParquetFile(file).read()
    except (OSError, ArrowException) as error:
        raise LakeFault(f"{file}: cannot be read: {error}") from None
    return Content(table.num_rows, digest.of_table(portion.complete(table, history, names)))


def fault(
    conninfo: str, lake: Path, leaf: Leaf, known: Manifest, runner: Runner, tell: Callable[[int], None]
) -> str | None:
    """The reason not to drop a day; None if the lake has exactly the same rows."""
    history = HISTORIES[known.table]
    now = day.sums(conninfo, history, leaf.day)
    if now != known.fingerprint:
        rows = f"PostgreSQL has {how_many(now.rows, 'row')}, the lake {known.fingerprint.rows}"
        return f"{rows}, or their sums differ: export it again"
    sources: list[Portion | LakeFile] = [*portions.cut(leaf), *known.files]
    try:
        read = runner.run(content, [Reading(conninfo, lake, known.table, source) for source in sources], tell)
    except LakeFault as damaged:
        return str(damaged)
    sides = list(zip(sources, read, strict=True))
    here = _together([each for source, each in sides if isinstance(source, portions.Portion)])
    there = _together([each for source, each in sides if not isinstance(source, portions.Portion)])
    aside = sum(known.quarantined.values())
    if (here.rows, here.digest) != (there.rows, there.digest):
        return f"the files hold {how_many(there.rows, 'row')}, PostgreSQL {here.rows}, or their content differs"
    if here.quarantined != aside or here.rows + aside != known.fingerprint.rows:
        return (
            f"the lake's quarantine has {how_many(aside, 'row')}, but {here.quarantined} of PostgreSQL's belong there"
        )
    missing = [path for path in known.aside if not (lake / path).is_file()]
    return f"{lake / missing[0]}: the file is missing, but the manifest names it" if missing else None


def _together(parts: list[Content]) -> Content:
    return Content(
        sum(part.rows for part in parts),
        digest.added(*(part.digest for part in parts)),
        sum(part.quarantined for part in parts),
    )
