"""command — `pillarbox analytics cleanup`: drops days that are verified in the lake, and finds orphans

Owns: the choice of days, the order verify → drop, consent, the report.
Guarantees: nothing is changed without --yes or a yes. A day is dropped only after its files were read back and hold the
    same rows as PostgreSQL, and only if its number of rows is unchanged under the lock that drops it. A day that
    differs is refused, the others continue, and the exit status is 1.
Raises: LakeFault, DatabaseUnavailable, PillarboxError.
See: docs/how-to/export-history.md; sql/README.md for the other way to drop days (`maintenance.keep`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from scripts.analytics import terminal
from scripts.analytics.export import command as export
from scripts.options import duration
from scripts.output import consent, records
from scripts.output.interrupted import telling
from scripts.output.table import Column, Table
from shared.how_many import how_many

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from scripts.analytics.cleanup.orphans import Orphans
    from scripts.analytics.runner import Runner
    from scripts.analytics.source.portions import Leaf

_SHOWN = 10  # examples of each kind of orphan


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
    verb.add_argument("--no-orphans", action="store_true", help="do not look for orphans")
    consent.add_consent(verb)
    terminal.add_spark(verb)
    terminal.add_common(verb, run)


def run(options: argparse.Namespace) -> int:
    """Verify, and with --yes drop and repair."""
    from scripts.analytics import session  # noqa: PLC0415 - it loads Spark
    from scripts.analytics.cleanup import orphans  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.export import day  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.runner import OnSpark  # noqa: PLC0415

    day.writable(options.lake)
    conninfo = terminal.conninfo(options)
    with session.started(options.master, options.memory) as spark:

        def once(*, yes: bool) -> CleanupReport:
            with telling(lambda: "a day is dropped whole or not at all; the same command does the rest"):
                done = cleanup(conninfo, options.lake, OnSpark(spark), options.keep, yes=yes)
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


def cleanup(conninfo: str, lake: Path, runner: Runner, keep: timedelta, *, yes: bool) -> CleanupReport:
    """Verify the days that ended more than `keep` ago, and drop them if `yes`."""
    done = CleanupReport()
    with export.alone(lake):
        for table in export.TABLES:
            for leaf in old(conninfo, table, keep):
                done.days.append(_day(conninfo, lake, runner, table, leaf, keep, yes=yes))
    return done


def old(conninfo: str, table: str, keep: timedelta) -> list[Leaf]:
    """The days of a table that ended more than `keep` ago by PostgreSQL's clock, the oldest first."""
    leaves = export.closed(conninfo, table, None, None)
    from scripts.analytics.source import copying  # noqa: PLC0415 - it loads Arrow

    with copying.session(conninfo) as connection:
        [clock] = copying.rows(connection, "analytics_epoch")
    return [leaf for leaf in leaves if leaf.day + timedelta(days=1) <= clock.today - keep]


def _day(
    conninfo: str, lake: Path, runner: Runner, table: str, leaf: Leaf, keep: timedelta, *, yes: bool
) -> DayVerdict:
    from scripts.analytics import manifest  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.cleanup import verify  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.source import copying  # noqa: PLC0415 - it loads Arrow

    known = manifest.load(lake, table, leaf.day)
    if known is None:
        return DayVerdict(table, str(leaf.day), 0, "refused", "the day is not in the lake: export it first")
    rows = known.fingerprint.rows
    verdict = DayVerdict(table, str(leaf.day), rows, "verified")
    progress = terminal.Progress(f"verify {table} {leaf.day}", leaf.pages // 4096 + 1 + len(known.files), "parts")
    try:
        fault = verify.fault(conninfo, lake, leaf, known, runner, progress.tell)
    except copying.PartitionDropped as gone:
        fault = str(gone)
    if fault is not None:
        return replace(verdict, state="refused", reason=fault)
    if not yes:
        return verdict
    with copying.session(conninfo, read_only=False) as connection:
        try:
            [answer] = copying.rows(connection, "analytics_drop", table=table, day=leaf.day, rows=rows, keep=keep)
        except copying.LOCKED:
            return replace(verdict, state="refused", reason="lock timeout: other sessions read the day; try again")
    if not answer.dropped:
        return replace(verdict, state="refused", reason="the rows have changed since they were verified: export again")
    manifest.commit(lake, replace(known, dropped=datetime.now(UTC).isoformat(timespec="seconds")))
    return replace(verdict, state="dropped")


def _show(done: CleanupReport, *, yes: bool, as_json: bool) -> None:
    orphans = done.orphans
    if as_json:
        days = [{name: getattr(each, name) for name in DayVerdict.__dataclass_fields__} for each in done.days]
        found = {name: getattr(orphans, name) for name in orphans.__dataclass_fields__} if orphans else None
        records.one({"days": days, "orphans": found, "changed": yes})
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
    count = sum(each.state in {"verified", "dropped"} for each in done.days)
    print(f"{'dropped' if yes else 'would drop'} {how_many(count, 'day')}, refused {len(done.refused)}")


def _examples(ids: Sequence[object]) -> str:
    shown = ", ".join(map(str, ids[:_SHOWN]))
    more = ", …" if len(ids) > _SHOWN else ""
    return f"{len(ids)} ({shown}{more})" if ids else "none"
