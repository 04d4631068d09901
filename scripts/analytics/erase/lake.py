"""lake — deletes what names a person's address from every day of the lake, and the files that held it

Owns: the order of the steps in the lake: find, rewrite a day's files, commit, let snapshots expire, remove files.
Guarantees: a day is replaced by one commit, with the sums of what is left of it, so that it stays equal to PostgreSQL's
    day after the same erasure. Files without the person are not written again. No more than a row group is in memory.
    Each step may be repeated: after a kill the same command does the rest. Old files are removed once no snapshot needs
    them; in a lake with another catalog, files that another run may be writing are left to the clean-up.
Raises: LakeFault.
See: sql/README.md, "Erasing a person".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import ArrowException, dataset, parquet

from scripts.analytics.erase.rows import Naming
from scripts.analytics.export import rollup
from scripts.analytics.export.portion import Place, write
from scripts.analytics.lake import days, files, unreferenced
from scripts.analytics.lake.faults import LakeFault, damaged
from scripts.analytics.source import fingerprint, quarantine
from scripts.analytics.source.columns import ATTEMPTS, HISTORIES
from scripts.analytics.source.fingerprint import Fingerprint
from shared.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from operate.erase import Person
    from scripts.analytics.lake.catalog import Lake
    from scripts.analytics.lake.days import LakeDay
    from scripts.analytics.source.columns import History

type Told = Callable[[str], None]

#: The archive last, as in PostgreSQL: it tells whose the attempts are.
_TABLES: Final = ("attempts", "audit", "archive")
_UNENDED: Final = timedelta(days=1)  # a file of another run that is younger may belong to a commit that has not ended


@dataclass(slots=True)
class Erased:
    """What was done: rows deleted, rows whose texts were changed, days replaced, files removed and left for a day."""

    deleted: int = 0
    changed: int = 0
    days: int = 0
    files: int = 0
    left: int = 0


def find(lake: Lake, person: Person) -> list[tuple[int, str]]:
    """The person's finished recipients in the lake, by number and message."""
    table = lake.table("archive")
    if table is None:
        return []
    naming = Naming("archive", person, frozenset())
    found = []
    for file in files.of_days(table, HISTORIES["archive"].instant):
        rows = _read(table, file, ["id", "messages__id"], naming.concerned([]))
        found += list(zip(rows["id"].to_pylist(), rows["messages__id"].to_pylist(), strict=True))
    return found


def erase(lake: Lake, person: Person, recipients: AbstractSet[tuple[int, str]], at: Told = lambda _: None) -> Erased:
    """Delete these recipients, and the address from the texts of others."""
    done = Erased()
    for name in _TABLES:
        table = lake.table(name)
        if table is None:
            continue
        naming = Naming(name, person, recipients)
        _quarantine(lake, table, naming, person, done, at)
        table.refresh()
        for known in days.every(name, table):
            _day(table, known, naming, done, at)
            table.refresh()
        if name == ATTEMPTS.name:
            rollup.roll_up(lake, table, at)
    _tidy(lake, done, at)
    return done


def _day(table: Table, known: LakeDay, naming: Naming, done: Erased, at: Told) -> None:
    """Replace the files of a day that name the person, if any do."""
    history = HISTORIES[known.table]
    at("look")
    found = [
        file
        for file in files.of_days(table, history.instant, known.day, known.day)
        if _read(table, file, [], naming.concerned(list(history.kinds))).num_rows
    ]
    if not found:
        return
    place, written, total = Place.of(table, known.day), [], known.fingerprint
    for file in found:
        at("rewrite")
        change = _Change(history, naming, known)
        location = write(place, change.of(_groups(table, file)))
        written += [location] if change.after.rows else []
        total = total - change.before + change.after
        done.deleted += change.before.rows - change.after.rows
        done.changed += change.changed
    made = replace(known, version=known.version + 1, fingerprint=total)
    days.replace(table, made, history.instant, written, at, old=found)
    done.days += 1


class _Change:
    """The rows of one file without the person, and the sums before and after."""

    def __init__(self, history: History, naming: Naming, known: LakeDay) -> None:
        self._history, self._naming = history, naming
        self._since = datetime(known.day.year, known.day.month, known.day.day, tzinfo=UTC)
        self.before = self.after = Fingerprint()
        self.changed = 0

    def of(self, groups: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for rows in groups:
            left = self._naming.left(rows)
            concerned = rows.filter(self._naming.concerned(rows.column_names)).num_rows
            self.changed += concerned - (rows.num_rows - left.num_rows)
            self.before += self._sums(rows)
            self.after += self._sums(left)
            yield left

    def _sums(self, rows: pa.Table) -> Fingerprint:
        for name, kind in self._history.kinds.items():
            if name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, kind.arrow))
        return fingerprint.of_table(rows, self._history, self._since)


def _read(table: Table, file: DataFile, columns: list[str], condition: Any) -> pa.Table:
    """The rows of one file that fit, without the columns that the condition alone needs."""
    history = HISTORIES[table.name()[-1]]
    system, _ = files.system(table)
    try:
        [whole] = dataset.dataset(
            [files.path(file.file_path)], history.arrow(), dataset.ParquetFileFormat(), system
        ).get_fragments()
        return whole.to_table(history.arrow(), columns, condition)
    except (OSError, ArrowException) as error:
        raise _fault(file, error) from None


def _groups(table: Table, file: DataFile) -> Iterator[pa.Table]:
    """The rows of one file, a row group at a time."""
    try:
        with (
            table.io.new_input(file.file_path).open() as source,
            parquet.ParquetFile(source, page_checksum_verification=True) as reader,
        ):
            for number in range(reader.num_row_groups):
                yield reader.read_row_group(number)
    except (OSError, ArrowException) as error:
        raise _fault(file, error) from None


def _fault(file: DataFile, error: Exception) -> LakeFault:
    return damaged(files.path(file.file_path), first_line(error))


def _quarantine(lake: Lake, table: Table, naming: Naming, person: Person, done: Erased, at: Told) -> None:
    """The same in the quarantine, whose rows count in the sums of their table's day.

    First the sums, computed from what is left, then the rows: killed in between, both are done again.
    """
    aside = lake.table(quarantine.TABLE)
    if aside is None:
        return
    history = HISTORIES[naming.history]
    for day in days.every(quarantine.TABLE, aside):
        condition = days.of(day.day, quarantine.INSTANT)
        rows = days.rows(aside, condition).to_pylist()
        left = [_without(row, naming, person) for row in rows]
        kept = [row for row in left if row is not None]
        if kept == rows:
            continue
        known = days.known(history.name, table, day.day)
        if known is not None:
            at("quarantine")
            mine = [row for row in kept if row["history"] == history.name]
            reasons: dict[str, int] = {}
            for row in mine:
                reasons[row["reason"]] = reasons.get(row["reason"], 0) + 1
            total = sum((_sums_of(row, history) for row in mine), _sums_of_day(table, known, history))
            days.note(table, replace(known, fingerprint=total, quarantined=reasons))
            table.refresh()
        found = pa.Table.from_pylist(kept, quarantine.SCHEMA)
        written = [write(Place.of(aside, day.day), [found])] if kept else []
        made = replace(day, version=day.version + 1, fingerprint=Fingerprint(rows=len(kept)))
        days.replace(aside, made, quarantine.INSTANT, written, at)
        aside.refresh()
        done.deleted += len(rows) - len(kept)


def _without(row: dict[str, Any], naming: Naming, person: Person) -> dict[str, Any] | None:
    """A quarantined row without the person; None if it is the person's own."""
    if row["history"] != naming.history:
        return row
    if naming.owns(dict(row["row"])):
        return None
    cells = [
        (name, person.without(value.decode("latin-1")).encode("latin-1") if name in naming.columns else value)
        for name, value in row["row"]
    ]
    return row | {"row": cells}


def _sums_of(row: dict[str, Any], history: History) -> Fingerprint:
    cells = dict(row["row"])
    midnight = row[quarantine.INSTANT].replace(hour=0, minute=0, second=0, microsecond=0)
    return Fingerprint(
        rows=1,
        ids=int(cells["id"]),
        instants=(row[quarantine.INSTANT] - midnight) // timedelta(microseconds=1),
        sizes=sum(int(cells[name]) for name in history.sizes if name in cells)
        + sum(name in cells for name in history.marks),
        octets=sum(len(cells[name]) for name in fingerprint.counted(history) if name in cells),
    )


def _sums_of_day(table: Table, known: LakeDay, history: History) -> Fingerprint:
    total = Fingerprint()
    since = datetime(known.day.year, known.day.month, known.day.day, tzinfo=UTC)
    for file in files.of_days(table, history.instant, known.day, known.day):
        for rows in _groups(table, file):
            total += fingerprint.of_table(rows, history, since)
    return total


def _tidy(lake: Lake, done: Erased, at: Told) -> None:
    """Let every snapshot but the newest expire, and remove the files that are not needed any more."""
    for table in lake.tables():
        old = unreferenced.named(table)
        at("forget")
        unreferenced.forget_deleted(table)
        at("expire")
        unreferenced.expire(table, timedelta(0))
        gone = old - unreferenced.named(table)
        found = unreferenced.listed(table, timedelta(0))
        # In a folder the lock keeps other runs away; elsewhere one may be writing a file that nothing names yet.
        ours = found if lake.folder else [path for path in found if path in gone]
        ended = [] if lake.folder else unreferenced.listed(table, _UNENDED)
        going = sorted({*ours, *ended})
        unreferenced.remove(table, going, at)
        done.files += len(going)
        done.left += len(found) - len(going)
