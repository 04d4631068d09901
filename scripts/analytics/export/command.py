"""command — `pillarbox analytics export`: writes closed days of history to Parquet files, each exactly once

Owns: the choice of days to export, their order, the lock on the lake, the output.
Guarantees: run again, it exports only days that are missing or have grown. One run at a time. After a day that was
    refused or dropped meanwhile, the others are still exported, and the exit status is 1.
Raises: LakeFault, DatabaseUnavailable, PillarboxError.
See: docs/how-to/export-history.md.
"""

from __future__ import annotations

import fcntl
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from scripts.analytics import terminal
from scripts.output import records
from scripts.output.interrupted import telling
from scripts.output.table import Column, Table
from shared.how_many import how_many

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from datetime import date

    from scripts.analytics.manifest import Manifest
    from scripts.analytics.runner import Runner
    from scripts.analytics.source.portions import Leaf

TABLES: Final = ("attempts", "archive")
_ROW: Final = 250  # octets of a row of history, for the choice of Spark's settings


@dataclass
class ExportReport:
    """The work of a run."""

    exported: list[Manifest] = field(default_factory=list)
    current: int = 0
    compacted: int = 0
    refused: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, day: Manifest | str | None) -> None:
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
    verb = verbs.add_parser("export", help="write closed days of history to Parquet files, each exactly once")
    add_lake(verb)
    verb.add_argument("--since", type=terminal.day, metavar="DAY", help="the first day to export (default: the oldest)")
    verb.add_argument("--until", type=terminal.day, metavar="DAY", help="the last day to export (default: yesterday)")
    verb.add_argument(
        "--classes",
        type=Path,
        metavar="FILE",
        help="file with a domain and its class on each line (default: the large providers)",
    )
    verb.add_argument("--compact", action="store_true", help="merge the small files of a day")
    terminal.add_spark(verb)
    terminal.add_common(verb, run)


def add_lake(parser: argparse.ArgumentParser) -> None:
    """Add the option --lake."""
    parser.add_argument(
        "--lake", type=Path, default=Path("var/lake"), metavar="DIR", help="folder of the lake (default var/lake)"
    )


def run(options: argparse.Namespace) -> int:
    """Export the missing days."""
    from scripts.analytics import classes, session  # noqa: PLC0415 - they load Arrow and Spark
    from scripts.analytics.export.day import writable  # noqa: PLC0415
    from scripts.analytics.runner import OnSpark  # noqa: PLC0415

    writable(options.lake)
    table = classes.load(options.classes)
    conninfo = terminal.conninfo(options)
    if options.master.startswith("local"):
        session.java_home()
    again = telling(lambda: "days that were exported are complete; the same command does the rest")
    with again, session.started(options.master, options.memory, light=True) as spark:
        done = export(
            conninfo,
            options.lake,
            OnSpark(spark),
            table=table,
            since=options.since,
            until=options.until,
            compact=options.compact,
        )
    _show(done, as_json=options.json)
    return 1 if done.refused else 0


def export(
    conninfo: str,
    lake: Path,
    runner: Runner,
    *,
    table: dict[str, str] | None = None,
    since: date | None = None,
    until: date | None = None,
    compact: bool = False,
    at: Callable[[str], None] = lambda _: None,
) -> ExportReport:
    """Export the closed days from `since` to `until`; `at` is called with each step's name before the step."""
    from scripts.analytics import manifest  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.classes import KNOWN  # noqa: PLC0415
    from scripts.analytics.export.compact import compact_day  # noqa: PLC0415
    from scripts.analytics.export.day import writable  # noqa: PLC0415

    begun = monotonic()
    done = ExportReport()
    classes = KNOWN if table is None else table
    writable(lake)
    with alone(lake):
        for name in TABLES:
            leaves = closed(conninfo, name, since, until)
            with _threads(runner.at_once) as threads:
                days = [threads.submit(_exported, conninfo, lake, name, leaf, classes, runner, at) for leaf in leaves]
                for day in days:
                    done.add(day.result())
            for known in manifest.every(lake, name) if compact else ():
                progress = terminal.Progress(f"compact {name} {known.day}", len(known.files), "files")
                done.compacted += compact_day(lake, known, runner, progress.tell, at) is not None
    done.seconds = monotonic() - begun
    return done


@contextmanager
def _threads(number: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads for the block; if the block raises, tasks that have not begun are cancelled."""
    threads = ThreadPoolExecutor(number)
    try:
        yield threads
    finally:
        threads.shutdown(cancel_futures=True)


def _exported(
    conninfo: str,
    lake: Path,
    name: str,
    leaf: Leaf,
    classes: dict[str, str],
    runner: Runner,
    at: Callable[[str], None],
) -> Manifest | str | None:
    """Export one day: its manifest, None if it was current, or why it was refused."""
    from scripts.analytics.export import day  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.source import copying, portions  # noqa: PLC0415 - they load Arrow
    from scripts.analytics.source.columns import HISTORIES  # noqa: PLC0415

    progress = terminal.Progress(f"export {name} {leaf.day}", len(portions.cut(leaf)), "portions")
    try:
        return day.export_day(conninfo, lake, HISTORIES[name], leaf, classes, runner, progress.tell, at)
    except (day.DayRefused, copying.PartitionDropped) as refused:
        return str(refused)


def closed(conninfo: str, table: str, since: date | None, until: date | None) -> list[Leaf]:
    """The days of a table that have ended by PostgreSQL's clock."""
    from scripts.analytics.source import copying, portions  # noqa: PLC0415 - they load Arrow

    with copying.session(conninfo) as connection:
        [clock] = copying.rows(connection, "analytics_epoch")
        leaves = [portions.Leaf(*row) for row in copying.rows(connection, "analytics_days", table=table)]
    return [
        leaf
        for leaf in leaves
        if leaf.day < clock.today and (since is None or leaf.day >= since) and (until is None or leaf.day <= until)
    ]


@contextmanager
def alone(lake: Path) -> Iterator[None]:
    """Hold the lock of a lake for the block."""
    from scripts.analytics.manifest import STAGING, LakeFault  # noqa: PLC0415 - it loads Arrow

    with (lake / STAGING / "lock").open("w") as door:
        try:
            fcntl.flock(door, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LakeFault(f"{lake}: locked by another export or cleanup; try again when it has ended") from None
        yield


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
        numbers = (Column(name, right=True) for name in ("version", "rows", "quarantined", "files"))
        Table([Column("table"), Column("day"), *numbers]).print(
            (made.table, made.day, made.version, made.rows, sum(made.quarantined.values()), len(made.files))
            for made in done.exported
        )
    for line in done.refused:
        print(f"refused: {line}")
    rate = done.rows / max(done.seconds, 1e-3)
    covered, written = how_many(len(done.exported), "day"), how_many(done.rows, "row", form=",")
    print(
        f"exported {covered}, {written} ({quarantined} quarantined) in {done.seconds:.1f} s, "
        f"{rate:,.0f} rows/s; {done.current} unchanged, {done.compacted} compacted, {len(done.refused)} refused"
    )
