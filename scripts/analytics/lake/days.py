"""days — the days of a lake's table: replacing one in one commit, and what is known about each

Owns: the properties `pillarbox.day.DAY` of a table, the properties of a snapshot that replaces a day, the commit.
Guarantees: a day is replaced by one commit to the catalog. The same commit records the sums that PostgreSQL computed
    over the day, in the snapshot and, as snapshots expire, in the table: a day is in the lake exactly once and with
    these sums, or not at all. A commit is refused if the table has changed since it was read.
Raises: LakeFault.
See: docs/explanation/analytics.md; https://iceberg.apache.org/spec/#snapshots.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import parquet_file_to_data_file

from scripts.analytics.lake.faults import LakeFault, reading
from scripts.analytics.source.fingerprint import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

_KEY: Final = "pillarbox.day."


@dataclass(frozen=True, slots=True)
class LakeDay:
    """One day of one table: how often it was exported, PostgreSQL's sums, and its rows in quarantine by reason."""

    table: str
    day: date
    version: int
    fingerprint: Fingerprint
    quarantined: dict[str, int] = field(default_factory=dict)
    dropped: str | None = None  # the time when PostgreSQL's partition was dropped after verification

    @property
    def rows(self) -> int:
        """Rows in the table; the others are in the quarantine."""
        return self.fingerprint.rows - sum(self.quarantined.values())

    def properties(self) -> dict[str, str]:
        """The property of the table that records this day."""
        known = asdict(self)
        return {f"{_KEY}{known.pop('day')}": json.dumps({key: known[key] for key in known if key != "table"})}

    def summary(self) -> dict[str, str]:
        """The properties of the snapshot that makes this day."""
        sums = {f"pillarbox.{name}": str(value) for name, value in asdict(self.fingerprint).items()}
        aside = str(sum(self.quarantined.values()))
        return {"pillarbox.day": str(self.day), "pillarbox.quarantined": aside} | sums


def every(name: str, table: Table) -> list[LakeDay]:
    """The days of a table in their order."""
    keys = sorted(key for key in table.properties if key.startswith(_KEY))
    return [_read(name, key.removeprefix(_KEY), table.properties[key]) for key in keys]


def known(name: str, table: Table, day: date) -> LakeDay | None:
    """What is known about a day; None if it is not in the lake."""
    text = table.properties.get(f"{_KEY}{day}")
    return None if text is None else _read(name, str(day), text)


def of(day: date, instant: str) -> str:
    """The condition that a row is of this day."""
    return between(day, day, instant)


def between(first: date, last: date, instant: str) -> str:
    """The condition that a row is of a day from `first` to `last`."""
    since = datetime(first.year, first.month, first.day, tzinfo=UTC)
    until = datetime(last.year, last.month, last.day, tzinfo=UTC) + timedelta(days=1)
    return f"{instant} >= '{since.isoformat()}' and {instant} < '{until.isoformat()}'"


def tasks(table: Table, condition: str = "true") -> list[FileScanTask]:
    """The files that may have rows of this condition, as the table's metadata names them."""
    with reading(f"{table.name()[-1]}: the metadata"):
        return list(table.scan(row_filter=condition).plan_files())


def rows(table: Table, condition: str, columns: tuple[str, ...] = ("*",)) -> pa.Table:
    """The rows of this condition, all in memory."""
    with reading(f"{table.name()[-1]}: the table"):
        return table.scan(condition, columns).to_arrow()


def replace(
    table: Table,
    made: LakeDay,
    instant: str,
    written: Sequence[str],
    at: Callable[[str], None] = lambda _: None,
    old: Sequence[DataFile] | None = None,
) -> None:
    """Make the files `written` the whole content of a day, or put them in the place of `old`, in one commit."""
    if old is None:
        old = [task.file for task in tasks(table, of(made.day, instant))]
    at("commit")
    try:
        with table.transaction() as change:
            if old or written:
                with change.update_snapshot(snapshot_properties=made.summary()).overwrite() as snapshot:
                    for file in old:
                        snapshot.delete_data_file(file)
                    for path in written:
                        snapshot.append_data_file(parquet_file_to_data_file(table.io, table.metadata, path))
            change.set_properties(made.properties())
    except CommitFailedException as error:
        raise LakeFault(f"{made.table} {made.day}: another program changed the lake; run it again ({error})") from None
    at("committed")


def note(table: Table, known_now: LakeDay) -> None:
    """Record what is known about a day, without changing its rows."""
    with table.transaction() as change:
        change.set_properties(known_now.properties())


def _read(name: str, day: str, text: str) -> LakeDay:
    try:
        found: dict[str, Any] = json.loads(text)
        found["fingerprint"] = Fingerprint(**found["fingerprint"])
        return LakeDay(name, date.fromisoformat(day), **found)
    except (ValueError, KeyError, TypeError) as error:
        raise LakeFault(
            f"{name}: the property {_KEY}{day} is not Pillarbox's ({error}); restore the metadata of the table"
        ) from None
