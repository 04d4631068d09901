"""command — `pillarbox analytics export`: writes closed days of history to the lake, each exactly once

Owns: the choice of days to export, their order, the output.
Guarantees: run again, it exports only days that are missing or have grown. One run at a time. After a day that was
    refused or dropped meanwhile, the others are still exported, and the exit status is 1. It needs no Java.
Raises: LakeFault, DatabaseUnavailable, PillarboxError.
See: docs/how-to/observe/export-history.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Final

from scripts import one_connection
from scripts.analytics import terminal
from scripts.output import records
from scripts.output.interrupted import telling
from scripts.output.table import Column, Table
from shared.errors import PillarboxError
from shared.how_many import how_many

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet
    from datetime import date

    from pyiceberg.table import Table as LakeTable

    from scripts.analytics.lake.catalog import Lake
    from scripts.analytics.lake.days import LakeDay
    from scripts.analytics.source.portions import Leaf
    from scripts.analytics.workers import Runner

#: The tables whose days PostgreSQL drops once they are in the lake; and the others that are exported.
TABLES: Final = ("attempts", "archive")
_ALSO: Final = ("audit",)


@dataclass
class ExportReport:
    """The work of a run."""

    exported: list[LakeDay] = field(default_factory=list)
    current: int = 0
    compacted: int = 0
    refused: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, day: LakeDay | str | None) -> None:
        """Record the result of a day."""
        if day is None:
            self.current += 1
        elif isinstance(day, str):
            self.refused.append(day)
        else:
            self.exported.append(day)

    @property
    def rows(self) -> int:
        """Rows read and written."""
        return sum(each.fingerprint.rows for each in self.exported)


def add_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `export`."""
    verb = verbs.add_parser("export", help="write closed days of history to the lake, each exactly once")
    add_lake(verb)
    verb.add_argument("--since", type=terminal.day, metavar="DAY", help="the first day to export (default: the oldest)")
    verb.add_argument("--until", type=terminal.day, metavar="DAY", help="the last day to export (default: yesterday)")
    verb.add_argument(
        "--again", action="store_true", help="days that the lake has too, from --since on: their files were damaged"
    )
    verb.add_argument("--compact", action="store_true", help="merge the small files of a day")
    terminal.add_jobs(verb)
    terminal.add_common(verb, run)


def add_lake(parser: argparse.ArgumentParser) -> None:
    """Add the option --lake."""
    parser.add_argument(
        "--lake",
        default="var/lake",
        metavar="LAKE",
        help="folder of the lake, or catalog:NAME of PyIceberg's configuration (default var/lake)",
    )


def run(options: argparse.Namespace) -> int:
    """Export the missing days."""
    from scripts.analytics import workers  # noqa: PLC0415 - only a run needs them
    from scripts.analytics.lake import catalog  # noqa: PLC0415 - it loads Arrow

    if options.again and options.since is None:
        raise PillarboxError("--again: --since is missing; allowed: --again --since DAY, and --until DAY (yesterday)")
    lake = catalog.opened(options.lake, create=True)
    conninfo = one_connection.chosen(options)
    again = telling(lambda: "days that were exported are complete; the same command does the rest")
    with again, workers.started(options.jobs) as runner:
        span = {"since": options.since, "until": options.until}
        done = export(conninfo, lake, runner, **span, again=options.again, compact=options.compact)
    _show(done, as_json=options.json)
    return 1 if done.refused else 0


def export(
    conninfo: str,
    lake: Lake,
    runner: Runner,
    *,
    since: date | None = None,
    until: date | None = None,
    again: bool = False,
    compact: bool = False,
    at: Callable[[str], None] = lambda _: None,
) -> ExportReport:
    """Export the closed days from `since` to `until`; `at` is called with each step's name before the step.

    again: those too that the lake has; PostgreSQL must still have all their rows.
    """
    from scripts.analytics.export import rollup  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.export.compact import compact_day  # noqa: PLC0415
    from scripts.analytics.lake import days  # noqa: PLC0415
    from scripts.analytics.source.columns import ATTEMPTS, HISTORIES  # noqa: PLC0415

    begun = monotonic()
    done = ExportReport()
    with lake.alone():
        for name in (*TABLES, *_ALSO):
            history = HISTORIES[name]
            table = lake.made(name, history.arrow(), history.instant)
            leaves = closed(conninfo, name, since, until)
            for leaf in leaves:
                done.add(_exported(conninfo, lake, table, leaf, runner, at, again=again))
                table.refresh()
            if again:
                done.refused += _gone(name, table, since, until, {leaf.day for leaf in leaves})
            if history is ATTEMPTS:
                rollup.roll_up(lake, table, at, {made.day for made in done.exported if made.table == name})
            for known in days.every(name, table) if compact else ():
                done.compacted += compact_day(table, known, history.instant, at)
                table.refresh()
        at("done")
    done.seconds = monotonic() - begun
    return done


def _exported(
    conninfo: str,
    lake: Lake,
    table: LakeTable,
    leaf: Leaf,
    runner: Runner,
    at: Callable[[str], None],
    *,
    again: bool,
) -> LakeDay | str | None:
    """Export one day; its state, None if the lake's is current, or why it was refused."""
    from scripts.analytics.export import day  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.source import copying, portions  # noqa: PLC0415
    from scripts.analytics.source.columns import HISTORIES  # noqa: PLC0415

    name = table.name()[-1]
    progress = terminal.Progress(f"export {name} {leaf.day}", len(portions.cut(leaf)), "portions")
    try:
        return day.export_day(conninfo, lake, table, HISTORIES[name], leaf, runner, progress.tell, at, again=again)
    except (day.DayRefused, copying.PartitionDropped) as refused:
        return str(refused)


def _gone(name: str, table: LakeTable, since: date | None, until: date | None, there: AbstractSet[date]) -> list[str]:
    """Why days of the lake cannot be exported again: PostgreSQL has dropped them."""
    from scripts.analytics.lake import days  # noqa: PLC0415 - it loads Arrow

    return [
        f"{name} {known.day}: PostgreSQL has the day no more; the lake was not changed"
        for known in days.every(name, table)
        if (since is None or since <= known.day) and (until is None or known.day <= until) and known.day not in there
    ]


def closed(conninfo: str, table: str, since: date | None, until: date | None) -> list[Leaf]:
    """The days of a table that have ended by PostgreSQL's clock."""
    from scripts.analytics.source import copying, portions  # noqa: PLC0415 - they load Arrow

    with copying.session(conninfo) as connection:
        [clock] = copying.rows(connection, "analytics_epoch")
        question, values = ("analytics_audit_days", {}) if table in _ALSO else ("analytics_days", {"table": table})
        leaves = [portions.Leaf(*row) for row in copying.rows(connection, question, **values)]
    return [
        leaf
        for leaf in leaves
        if leaf.day < clock.today and (since is None or leaf.day >= since) and (until is None or leaf.day <= until)
    ]


def _show(done: ExportReport, *, as_json: bool) -> None:
    quarantined = sum(rows for each in done.exported for rows in each.quarantined.values())
    figures = {
        "days": len(done.exported),
        "rows": done.rows,
        "quarantined": quarantined,
        "current": done.current,
        "compacted": done.compacted,
        "refused": done.refused,
        "seconds": round(done.seconds, 2),
    }
    if as_json:
        days = [{"table": m.table, "day": str(m.day), "version": m.version, "rows": m.rows} for m in done.exported]
        records.one(figures | {"exported": days})
        return
    if done.exported:
        numbers = (Column(name, right=True) for name in ("version", "rows", "quarantined"))
        Table([Column("table"), Column("day"), *numbers]).print(
            (made.table, made.day, made.version, made.rows, sum(made.quarantined.values())) for made in done.exported
        )
    for line in done.refused:
        print(f"refused: {line}")
    rate = done.rows / max(done.seconds, 1e-3)
    covered, written = how_many(len(done.exported), "day"), how_many(done.rows, "row", form=",")
    print(
        f"exported {covered}, {written} ({quarantined} quarantined) in {done.seconds:.1f} s, "
        f"{rate:,.0f} rows/s; {done.current} unchanged, {done.compacted} compacted, {len(done.refused)} refused"
    )
