"""command — `pillarbox analytics report`: reports on history as a page, as JSON, as tables, and in PostgreSQL

Owns: the options, the period, the source of history, and the destination of the report.
Guarantees: read-only except for --store. A page is written under another name and renamed at the end, so it is always
    complete. Progress goes to standard error.
Raises: PillarboxError.
See: docs/how-to/observe/report.md; docs/reference/analyses.md.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from operate.partitions.balance import balance
from operate.partitions.layout import natural, wanted
from scripts import one_connection
from scripts.analytics import terminal
from scripts.analytics.report.page import page
from scripts.analytics.report.sections import SECTIONS, Report
from scripts.analytics.report.text import as_document, print_tables
from scripts.output import records
from scripts.replace_file import replace
from shared.config.smtpd.load import load_smtpd
from shared.errors import PillarboxError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from operate.partitions.layout import Layout
    from scripts.analytics.report.figures import Rows

_DAYS: Final = 30
_TOP: Final = 100
_ONE: Final = timedelta(days=1)
_SIZED: Final = ("attempts", "archive")
_MANY: Final = (
    32 << 20
)  # octets of history below which compiling takes longer than it saves; about 700,000 rows of a lake


@dataclass(frozen=True, slots=True)
class Period:
    """The scope of a report: days from `since` to before `until`, from the lake if given, else from PostgreSQL."""

    since: date
    until: date
    lake: str | None = None
    conninfo: str = ""
    top: int = _TOP

    @property
    def origin(self) -> str:
        """The source of history, without a password."""
        return f"the lake {self.lake}" if self.lake else "PostgreSQL"


def add_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `report`."""
    verb = verbs.add_parser("report", help="report on deliverability, waiting, bounces, TLS, throttling, volume …")
    verb.add_argument(
        "--lake", metavar="LAKE", help="lake of exported history: a folder, or catalog:NAME (default: read PostgreSQL)"
    )
    verb.add_argument(
        "--since", type=terminal.day, metavar="DAY", help=f"the first day (default: {_DAYS} days up to --until)"
    )
    verb.add_argument("--until", type=terminal.day, metavar="DAY", help="the last day (default: yesterday, UTC)")
    verb.add_argument(
        "--top", type=terminal.count, default=_TOP, metavar="N", help=f"most rows of a section (default {_TOP})"
    )
    verb.add_argument(
        "--leaves", type=terminal.count, metavar="N", help="number of leaves to recommend (default: the present number)"
    )
    verb.add_argument("--html", type=Path, metavar="FILE", help="write the report as an HTML page")
    verb.add_argument("--store", action="store_true", help="also store the report in the table reports")
    terminal.add_spark(verb)
    terminal.add_common(verb, run)


def run(options: argparse.Namespace) -> int:
    """Make the report and write it to the places that the options name."""
    from scripts.analytics import session  # noqa: PLC0415 - it loads Spark
    from scripts.analytics.report import store  # noqa: PLC0415 - it loads the database driver

    last = options.until or datetime.now(UTC).date() - _ONE
    since = options.since or last - (_DAYS - 1) * _ONE
    if since > last:
        raise PillarboxError(f"--since: {since} is after --until {last}")
    _writable(options.html)
    conninfo = one_connection.chosen(options) if options.store or options.lake is None else ""
    asked = Period(since, last + _ONE, options.lake, conninfo, options.top)
    layout = _layout(options)
    progress = terminal.Progress("report", len(SECTIONS), "sections")
    small = sum(octets for _, day, octets in _octets(asked) if day >= since) < _MANY
    with session.started(options.master, options.memory, small=small) as spark:
        report = make(spark, asked, layout, options.leaves, progress)
    if options.html is not None:
        _put(options.html, page(report))
    if options.store:
        store.store(report, conninfo)
    if options.json:
        records.one(as_document(report))
    else:
        print_tables(report)
        if options.html is not None:
            print(f"\nwrote {options.html}")
    return 0


def make(
    spark: SparkSession,
    asked: Period,
    layout: Layout,
    leaves: int | None = None,
    progress: terminal.Progress | None = None,
) -> Report:
    """The report. layout: the present leaves of the queue, for the recommendation; {} recommends none."""
    from scripts.analytics.report import counting  # noqa: PLC0415 - it loads Spark
    from scripts.analytics.report.figures import compute, planned  # noqa: PLC0415
    from scripts.analytics.spark_errors import understood  # noqa: PLC0415

    done, lock = [0], Lock()

    def on_section(key: str) -> None:
        with lock:
            done[0] += 1
            if progress is not None:
                progress.tell(done[0], key)

    with understood(), _history(spark, asked) as (attempts, archive):
        sizes = {"sizes": _sizes(spark, asked)}
        counted = terminal.Progress("report: counting", counting.COUNTED, "tables")
        told = counted.tell if progress is not None else _untold
        with counting.kept(attempts, archive, asked.top + 1, lambda given: planned(given | sizes), told) as frames:
            rows = compute(spark, frames, asked.top, on_section)
    since, until = (datetime.combine(day, time(), UTC) for day in (asked.since, asked.until))
    cut = {key for key, found in rows.items() if _is_cut(key, found, asked.top)}
    shown = {key: found[: asked.top] if key in cut else found for key, found in rows.items()}
    made = datetime.now(UTC).replace(microsecond=0)
    return Report(since, until, made, asked.origin, shown, frozenset(cut), recommended(layout, rows["weights"], leaves))


@contextmanager
def _history(spark: SparkSession, asked: Period) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Attempts and archive of the period, for the block; PostgreSQL is read only once."""
    from scripts.analytics.lake import catalog  # noqa: PLC0415 - they load Arrow
    from scripts.analytics.lake import spark as lake_spark  # noqa: PLC0415
    from scripts.analytics.report import count_archive, count_attempts  # noqa: PLC0415 - they load Spark
    from scripts.analytics.source import source  # noqa: PLC0415

    wanted, last = {"attempts": count_attempts.COLUMNS, "archive": count_archive.COLUMNS}, asked.until - _ONE
    if asked.lake is not None:
        lake = catalog.opened(asked.lake)
        found = [lake_spark.frame(spark, lake, name, columns, asked.since, last) for name, columns in wanted.items()]
        yield found[0], found[1]
        return
    from pyspark import StorageLevel  # noqa: PLC0415

    found = [
        source.frame(spark, asked.conninfo, name, columns, asked.since, last).persist(StorageLevel.DISK_ONLY)
        for name, columns in wanted.items()
    ]
    try:
        yield found[0], found[1]
    finally:
        for frame in found:
            frame.unpersist()


def _sizes(spark: SparkSession, asked: Period) -> DataFrame:
    """Days of attempts and archive, and the octets of each where history is read from."""
    return spark.createDataFrame(_octets(asked), "history string, day date, octets long")


def _octets(asked: Period) -> list[tuple[str, date, int]]:
    """The same, as rows: history, day, octets."""
    from scripts.analytics.lake import catalog, files  # noqa: PLC0415 - they load Arrow
    from scripts.analytics.source import copying  # noqa: PLC0415

    if asked.lake is not None:
        lake = catalog.opened(asked.lake)
        found = [(name, day, octets) for name in _SIZED for day, octets in files.sizes(lake.needed(name)).items()]
    else:
        with copying.session(asked.conninfo) as session:
            found = [
                (row[0], row[1], row[2])
                for name in _SIZED
                for row in copying.rows(session, "analytics_sizes", table=name)
            ]
    return [each for each in found if each[1] < asked.until]


def _untold(_: int) -> None:
    """Ignore progress, the default."""


def recommended(layout: Layout, weights: Rows, leaves: int | None) -> dict[str, list[str]]:
    """Leaves of about equal weight; {} if there is no recommendation."""
    given = {row["partid"]: float(row["seconds"]) for row in weights if _is_id(row["partid"])}
    number = len(layout) if leaves is None else leaves
    if not layout or not given or not 1 <= number <= len(set(given).union(*layout.values())):
        return {}
    found = balance(layout, given, number)
    return {name: sorted(ids, key=natural) for name, ids in sorted(found.items())}


def _is_id(text: object) -> bool:
    return isinstance(text, str) and not text.startswith("(")


def _is_cut(key: str, found: Rows, top: int) -> bool:
    from scripts.analytics.report.figures import WHOLE  # noqa: PLC0415 - it loads Spark

    return key not in WHOLE and len(found) > top


def _layout(options: argparse.Namespace) -> Layout:
    settings = load_smtpd(options.config / "smtpd.yaml").environment.database
    return wanted(settings.partitions.leaves)


def _writable(path: Path | None) -> None:
    """Raise if the page cannot be written there, before the work begins."""
    if path is None:
        return
    try:
        possible = path.parent.is_dir() and (path.is_file() or not path.exists())
    except OSError:
        possible = False
    if not possible:
        raise PillarboxError(f"--html: {path} cannot be written; allowed: a file in an existing folder")


def _put(path: Path, text: str) -> None:
    try:
        replace(path, text)
    except OSError as error:
        raise PillarboxError(f"--html: {path} cannot be written: {error.strerror}") from None
