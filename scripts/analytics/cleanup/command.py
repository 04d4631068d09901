"""command — `pillarbox analytics cleanup`: drops days that are verified in the lake, finds orphans, tidies the lake

Owns: the choice of days, the order verify → drop, consent, the report.
Guarantees: nothing is changed without --yes or a yes. A day is dropped only after Spark read both sides again and found
    the same rows, and only if its number of rows is unchanged under the lock that drops it. A day that differs is
    refused, the others continue, and the exit status is 1. Files are removed only if no snapshot needs them.
Raises: LakeFault, DatabaseUnavailable, PillarboxError.
See: docs/how-to/observe/export-history.md; sql/README.md for the other way to drop days (`maintenance.keep`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from scripts import one_connection
from scripts.analytics import terminal
from scripts.analytics.export import command as export
from scripts.options import duration
from scripts.output import consent, records
from scripts.output.interrupted import telling
from scripts.output.table import Column, Table
from shared.how_many import how_many

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from scripts.analytics.cleanup.orphans import Orphans
    from scripts.analytics.lake.catalog import Lake
    from scripts.analytics.source.portions import Leaf

_SHOWN = 10  # examples of each kind of orphan
_UNENDED = timedelta(days=1)  # a file that nothing names may belong to a commit that has not ended


@dataclass(frozen=True, slots=True)
class DayVerdict:
    """The result for a day: verified, dropped, or why not."""

    table: str
    day: str
    rows: int
    state: str
    reason: str = ""


@dataclass
class CleanupReport:
    """The findings and changes of a run."""

    days: list[DayVerdict] = field(default_factory=list)
    orphans: Orphans | None = None
    expired: int = 0
    files: list[str] = field(default_factory=list)

    @property
    def refused(self) -> list[DayVerdict]:
        """Days that were old enough but were not dropped."""
        return [each for each in self.days if each.state == "refused"]


def add_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `cleanup`."""
    verb = verbs.add_parser("cleanup", help="drop days that are verified in the lake; find orphans")
    export.add_lake(verb)
    verb.add_argument(
        "--keep",
        type=duration,
        default=timedelta(days=30),
        metavar="TIME",
        help="keep days that ended within this time (default 30d)",
    )
    verb.add_argument(
        "--keep-snapshots",
        type=duration,
        default=timedelta(days=7),
        metavar="TIME",
        help="keep what the lake's tables were within this time (default 7d)",
    )
    verb.add_argument("--no-orphans", action="store_true", help="do not look for orphans")
    consent.add_consent(verb)
    terminal.add_spark(verb)
    terminal.add_common(verb, run)


def run(options: argparse.Namespace) -> int:
    """Verify, and with --yes drop and repair."""
    from scripts.analytics import session  # noqa: PLC0415 - it loads Spark
    from scripts.analytics.cleanup import orphans  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.lake import catalog  # noqa: PLC0415

    lake = catalog.opened(options.lake)
    conninfo = one_connection.chosen(options)
    with session.started(options.master, options.memory) as spark:

        def once(*, yes: bool) -> CleanupReport:
            with telling(lambda: "a day is dropped whole or not at all; the same command does the rest"):
                done = cleanup(conninfo, lake, spark, options.keep, options.keep_snapshots, yes=yes)
                if not options.no_orphans:
                    done.orphans = orphans.find(spark, conninfo)
                    if yes:
                        orphans.mend(conninfo, done.orphans)
            _show(done, yes=yes, as_json=options.json)
            return done

        done = once(yes=options.yes)
        if not options.yes and asyncio.run(consent.agreed(options, "analytics cleanup")):
            done = once(yes=True)
    return 1 if done.refused else 0


def cleanup(
    conninfo: str,
    lake: Lake,
    spark: SparkSession,
    keep: timedelta,
    snapshots: timedelta,
    *,
    yes: bool,
    at: Callable[[str], None] = lambda _: None,
) -> CleanupReport:
    """Verify the days that ended more than `keep` ago, and drop them and what the lake does not need if `yes`."""
    done = CleanupReport()
    with lake.alone():
        for table in export.TABLES:
            for leaf in old(conninfo, table, keep):
                done.days.append(_day(conninfo, lake, spark, table, leaf, keep, yes=yes, at=at))
        tidy(lake, done, snapshots, _UNENDED, yes=yes, at=at)
    return done


def tidy(
    lake: Lake,
    done: CleanupReport,
    snapshots: timedelta,
    unended: timedelta,
    *,
    yes: bool,
    at: Callable[[str], None] = lambda _: None,
) -> None:
    """Let old snapshots expire, and remove the files that nothing names and that are older than `unended`."""
    from scripts.analytics.lake import unreferenced  # noqa: PLC0415 - it loads Arrow

    for table in lake.tables():
        if yes:
            at("expire")
            done.expired += unreferenced.expire(table, snapshots)
        found = unreferenced.listed(table, unended)
        if yes:
            unreferenced.remove(table, found, at)
        done.files += found


def old(conninfo: str, table: str, keep: timedelta) -> list[Leaf]:
    """The days of a table that ended more than `keep` ago by PostgreSQL's clock, the oldest first."""
    leaves = export.closed(conninfo, table, None, None)
    from scripts.analytics.source import copying  # noqa: PLC0415 - it loads Arrow

    with copying.session(conninfo) as connection:
        [clock] = copying.rows(connection, "analytics_epoch")
    return [leaf for leaf in leaves if leaf.day + timedelta(days=1) <= clock.today - keep]


def _day(
    conninfo: str,
    lake: Lake,
    spark: SparkSession,
    name: str,
    leaf: Leaf,
    keep: timedelta,
    *,
    yes: bool,
    at: Callable[[str], None],
) -> DayVerdict:
    from scripts.analytics.cleanup import verify  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.lake import days  # noqa: PLC0415
    from scripts.analytics.source import copying  # noqa: PLC0415

    table = lake.needed(name)
    known = days.known(name, table, leaf.day)
    if known is None:
        return DayVerdict(name, str(leaf.day), 0, "refused", "the day is not in the lake: export it first")
    rows = known.fingerprint.rows
    verdict = DayVerdict(name, str(leaf.day), rows, "verified")
    at("verify")
    fault = verify.fault(spark, conninfo, lake, leaf, known)
    if fault is not None:
        return replace(verdict, state="refused", reason=fault)
    if not yes:
        return verdict
    at("drop")
    with copying.session(conninfo, read_only=False) as connection:
        try:
            [answer] = copying.rows(connection, "analytics_drop", table=name, day=leaf.day, rows=rows, keep=keep)
        except copying.LOCKED:
            return replace(verdict, state="refused", reason="lock timeout: other sessions read the day; try again")
    if not answer.dropped:
        return replace(verdict, state="refused", reason="the rows have changed since they were verified: export again")
    at("dropped")
    days.note(table, replace(known, dropped=datetime.now(UTC).isoformat(timespec="seconds")))
    return replace(verdict, state="dropped")


def _show(done: CleanupReport, *, yes: bool, as_json: bool) -> None:
    orphans = done.orphans
    if as_json:
        days = [{name: getattr(each, name) for name in DayVerdict.__dataclass_fields__} for each in done.days]
        found = {name: getattr(orphans, name) for name in orphans.__dataclass_fields__} if orphans else None
        tidied = {"expired": done.expired, "files": done.files}
        records.one({"days": days, "orphans": found, "changed": yes} | tidied)
        return
    if done.days:
        columns = (
            Column("table"),
            Column("day"),
            Column("rows", right=True),
            Column("state"),
            Column("reason", wraps=True),
        )
        Table(columns).print((each.table, each.day, each.rows, each.state, each.reason) for each in done.days)
    if orphans is not None:
        print(f"bodies without recipients: {_examples(orphans.bodies)}; given to the sweep: {orphans.released}")
        print(f"recipients without body: {_examples(orphans.recipients)}; held: {orphans.held}")
        print(f"attempts without recipients: {_examples(orphans.attempts)}; history is not changed")
    print(f"files that nothing needs: {_examples(done.files)}; snapshots expired: {done.expired}")
    count = sum(each.state in {"verified", "dropped"} for each in done.days)
    print(f"{'dropped' if yes else 'would drop'} {how_many(count, 'day')}, refused {len(done.refused)}")


def _examples(ids: Sequence[object]) -> str:
    shown = ", ".join(map(str, ids[:_SHOWN]))
    more = ", …" if len(ids) > _SHOWN else ""
    return f"{len(ids)} ({shown}{more})" if ids else "none"
