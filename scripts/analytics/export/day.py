"""day — exports one day into the lake, exactly once: read, compare, commit

Owns: the order of these steps.
Guarantees: after a kill in any step the lake has the day as before or as after the commit, never a mixture; files that
    no commit names are found by the clean-up. A day with fewer rows than the lake has is refused, except where
    retention may delete rows; then the lake keeps them.
Raises: DayRefused, PartitionDropped, LakeFault, DatabaseUnavailable.
See: docs/explanation/analytics.md, "Killed in the middle".
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from scripts.analytics.export.portion import Piece, Place, write, write_portion
from scripts.analytics.lake import days
from scripts.analytics.lake.days import LakeDay
from scripts.analytics.source import copying, fingerprint, portions, quarantine
from scripts.analytics.source.fingerprint import Fingerprint
from shared.errors import PillarboxError
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from pyiceberg.table import Table

    from scripts.analytics.export.portion import Written
    from scripts.analytics.lake.catalog import Lake
    from scripts.analytics.source.columns import History
    from scripts.analytics.workers import Runner

_ROUNDS: Final = 3  # how often a day that grows during the read is read


class DayRefused(PillarboxError):
    """PostgreSQL and the lake differ about a day in a way that an export must not resolve."""


def sums(conninfo: str, history: History, day: date) -> Fingerprint:
    """The sums over PostgreSQL's rows of a day."""
    since = datetime(day.year, day.month, day.day, tzinfo=UTC)
    with copying.session(conninfo) as session:
        there = {row.name for row in copying.rows(session, "analytics_columns", table=history.name)}
        counted = [name for name in fingerprint.counted(history) if name in there]
        found = copying.sums(session, history, counted, since)
    return Fingerprint(*(int(value) for value in found))


def is_current(history: History, known: LakeDay, now: Fingerprint, *, again: bool = False) -> bool:
    """Whether the lake's day is current; DayRefused if the lake has more rows than PostgreSQL.

    again: a day is not current although it is equal; retention's fewer rows are refused then.
    """
    fewer = now.rows < known.fingerprint.rows
    if known.fingerprint == now:
        return not again
    if history.mutable and not (fewer and again):
        return fewer
    if now.rows <= known.fingerprint.rows:
        raise DayRefused(
            f"{known.table} {known.day}: PostgreSQL has {how_many(now.rows, 'row')}, the lake {known.fingerprint.rows}"
            f"{' with other content' if now.rows == known.fingerprint.rows else ''}; the lake was not changed"
        )
    return False


def export_day(
    conninfo: str,
    lake: Lake,
    table: Table,
    history: History,
    leaf: portions.Leaf,
    runner: Runner,
    tell: Callable[[int], None],
    at: Callable[[str], None],
    *,
    again: bool = False,
) -> LakeDay | None:
    """Export one day; None if the lake's is current. `at` is called with each step's name before the step.

    again: as in `is_current`.
    """
    known = days.known(history.name, table, leaf.day)
    if known is not None and is_current(history, known, sums(conninfo, history, leaf.day), again=again):
        return None
    place = Place.of(table, leaf.day)
    for _ in range(_ROUNDS):
        at("read")
        cut = portions.cut(leaf)
        written = runner.run(write_portion, [Piece(conninfo, history.name, each, place) for each in cut], tell)
        at("compare")
        now = sums(conninfo, history, leaf.day)
        made = _summed(
            LakeDay(history.name, leaf.day, 1 if known is None else known.version + 1, Fingerprint()), written
        )
        if made.fingerprint == now:
            if made.quarantined or (known is not None and known.quarantined):
                at("quarantine")
                _set_aside(lake, made, [each.aside for each in written if each.aside is not None])
            files = [each.file for each in written if each.file is not None]
            days.replace(table, made, history.instant, files, at)
            return made
    raise DayRefused(
        f"{history.name} {leaf.day}: the day changed during each of {_ROUNDS} reads: {asdict(now)}; export it later"
    )


def _summed(made: LakeDay, written: Sequence[Written]) -> LakeDay:
    """The day as the workers wrote it."""
    quarantined: dict[str, int] = {}
    for each in written:
        for reason, rows in each.quarantined.items():
            quarantined[reason] = quarantined.get(reason, 0) + rows
    total = sum((each.fingerprint for each in written), Fingerprint())
    return replace(made, fingerprint=total, quarantined=quarantined)


def _set_aside(lake: Lake, made: LakeDay, bad: Sequence[pa.Table]) -> None:
    """Replace the rows of this day and table in the quarantine; before the day's own commit, which counts them."""
    aside = lake.made(quarantine.TABLE, quarantine.SCHEMA, quarantine.INSTANT)
    others = days.rows(aside, days.of(made.day, quarantine.INSTANT))
    kept = [row for row in others.to_pylist() if row["history"] != made.table]
    found = pa.concat_tables([pa.Table.from_pylist(kept, quarantine.SCHEMA), *bad])
    rows = Fingerprint(rows=found.num_rows)
    files = [write(Place.of(aside, made.day), [found])] if found.num_rows else []
    known = days.known(quarantine.TABLE, aside, made.day)
    version = 1 if known is None else known.version + 1
    days.replace(aside, LakeDay(quarantine.TABLE, made.day, version, rows), quarantine.INSTANT, files)
