"""rollup_read — reads history once and counts it into the small tables that the analyses begin with

Owns: the work of a report's worker: read files of the lake or portions of PostgreSQL, a stretch of rows at a time, and
    count them; the division into parts, and merging their counts.
Guarantees: rows do not pass through Java: its input grows with the number of destinations, hours and wordings, not with
    the history. `attempts` and `archive` are read once; if an address was refused, four columns of `archive` are read
    again. In PostgreSQL each portion is one short transaction that ends before its rows are counted.
Raises: LakeFault naming a file that is damaged or was removed; PartitionDropped, DatabaseUnavailable.
See: docs/explanation/analytics.md, "Report".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import ArrowException, parquet

from scripts.analytics import lake
from scripts.analytics.manifest import LakeFault
from scripts.analytics.report import rollup_archive, rollup_attempts
from scripts.analytics.source import copying, portion, portions
from scripts.analytics.source.columns import HISTORIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import date, datetime

    from scripts.analytics.runner import Runner
    from scripts.analytics.source.portions import Portion

#: Rows counted at once: enough that the overhead of a stretch is small, few enough for a worker's memory.
_STRETCH: Final = 1 << 18
#: Stretches whose tables a worker holds before it merges them.
_HELD: Final = 16
#: Parts of one table, and the most sources of a part: each part sends its tables once.
_PARTS: Final = 16
_SOURCES: Final = 32
_ROLLUPS: Final[dict[str, Any]] = {"attempts": rollup_attempts, "archive": rollup_archive}
#: Columns with few distinct values: they stay dictionary-encoded, as in Parquet, and are counted as numbers.
_NUMBERED: Final = frozenset(
    {"partid", "transportid", "senderdomain", "recipientdomain", "outcome", "reply_enhanced", "tls", "source", "result",
     "metadata"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """Files of the lake or portions of PostgreSQL that one worker counts; the refusals it looks up, if any."""

    table: str
    sources: tuple[str | Portion, ...]
    conninfo: str = ""
    refusals: pa.Table | None = None


def from_lake(folder: Path, table: str, since: date, last: date) -> list[Part]:
    """The parts of the days from `since` to `last` in the lake."""
    return _shared(table, lake.files(folder, lake.days(folder, table, since, last)))


def from_postgresql(conninfo: str, table: str, since: datetime, last: datetime) -> list[Part]:
    """The parts of the days from `since` to `last` in PostgreSQL."""
    with copying.session(conninfo) as session:
        leaves = [portions.Leaf(*row) for row in copying.rows(session, "analytics_days", table=table)]
    cut = [each for leaf in portions.within(leaves, since, last) for each in portions.cut(leaf)]
    return _shared(table, cut, conninfo)


def count(part: Part) -> dict[str, pa.Table]:
    """The tables of one part."""
    rollup = _ROLLUPS[part.table]
    found = [nothing(part.table)]
    for rows in _rows(part, rollup.COLUMNS):
        found.append(rollup.rollup(rows))
        if len(found) == _HELD:
            found = [rollup.merged(found)]
    return dict(rollup.merged(found))


def look_up(part: Part) -> pa.Table:
    """When the refused addresses last accepted mail, in one part."""
    if part.refusals is None:
        raise AssertionError
    columns = rollup_archive.TAKEN_COLUMNS
    found = [rollup_archive.taken(rows, part.refusals) for rows in _rows(part, columns)]
    return pa.concat_tables([rollup_archive.taken(_empty("archive", columns), part.refusals), *found])


def tables(
    runner: Runner, parts: Sequence[Part], top: int, tell: Callable[[int], None] = lambda _: None
) -> dict[str, pa.Table]:
    """The tables of attempts and archive; waiting times only for the `top` destinations with the most deliveries."""
    counted = runner.run(count, parts, tell)
    found: dict[str, pa.Table] = {}
    for table, rollup in _ROLLUPS.items():
        mine = [made for part, made in zip(parts, counted, strict=True) if part.table == table]
        found |= rollup.merged(mine or [nothing(table)])
    refusals = rollup_archive.candidates(found["refusals"])
    if refusals.num_rows:
        again = [replace(part, refusals=refusals) for part in parts if part.table == "archive"]
        refusals = rollup_archive.refused_since(refusals, runner.run(look_up, again, lambda _: None))
    paces, hours = rollup_attempts.paces(found["hours"]), rollup_attempts.hourly(found["hours"])
    delivered = rollup_archive.most(found["delivered"], top)
    return found | {"refusals": refusals, "paces": paces, "hours": hours, "delivered": delivered}


def nothing(table: str) -> dict[str, pa.Table]:
    """The tables counted from no rows."""
    rollup = _ROLLUPS[table]
    return dict(rollup.rollup(_empty(table, rollup.COLUMNS)))


def _empty(table: str, columns: Sequence[str]) -> pa.Table:
    return HISTORIES[table].arrow(columns).empty_table()


def _shared(table: str, sources: Sequence[str | Portion], conninfo: str = "") -> list[Part]:
    """The parts; neighbouring sources are in one part, because they share hours."""
    each = min(-(-len(sources) // _PARTS) or 1, _SOURCES)
    return [Part(table, tuple(sources[start : start + each]), conninfo) for start in range(0, len(sources), each)]


def _rows(part: Part, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of a part, a stretch at a time, with all text decoded."""
    history = HISTORIES[part.table]
    for source in part.sources:
        if isinstance(source, str):
            for batch in _stretches(Path(source), columns):
                yield portion.complete(batch, history, columns)
        else:
            table = portion.read(part.conninfo, history, source, columns)
            yield portion.printable(table, history)


def _stretches(file: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    try:
        metadata = parquet.read_metadata(file)
        there = [name for name in columns if name in metadata.schema.names]
        numbered = [name for name in there if name in _NUMBERED]
        with parquet.ParquetFile(file, metadata=metadata, read_dictionary=numbered) as reader:
            for batch in reader.iter_batches(_STRETCH, columns=there, use_threads=False):
                yield pa.Table.from_batches([batch])
    except FileNotFoundError:
        raise LakeFault(
            f"{file}: the file was removed during the report; no report was written; run it again"
        ) from None
    except (OSError, ArrowException):
        raise LakeFault(f"{file}: the file is damaged; no report was written; export its day again") from None
