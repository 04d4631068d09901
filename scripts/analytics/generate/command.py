"""command — `pillarbox analytics generate`: writes synthetic history of any size, to try reports and to measure

Owns: the division among days, the numbers of rows, and writing by COPY: attempts and archive in parallel,
    while the next rows are made.
Guarantees: the same seed makes the same rows except for their ids; missing days are created; without --yes or a yes it
    only previews. An interrupted run leaves whole stretches, never part of one.
Raises: DatabaseUnavailable, PillarboxError.
Bugs: the number of attempts is only right to a few in a thousand, because retries are random.
See: docs/how-to/observe/export-history.md.
"""

from __future__ import annotations

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final

from scripts import one_connection
from scripts.analytics import terminal
from scripts.options import MOST, between
from scripts.output import consent, records
from scripts.output.interrupted import telling
from shared.how_many import how_many

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    import pyarrow as pa

    from scripts.analytics.source.columns import History
    from scripts.analytics.source.copying import Session

_DAYS: Final = 3650
_STRETCH: Final = 100_000  # recipients generated and written at once


@dataclass(frozen=True, slots=True)
class Made:
    """The rows that a run wrote, and the seconds it took."""

    attempts: int
    archive: int
    seconds: float


def add_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `generate`."""
    verb = verbs.add_parser("generate", help="write synthetic history, to try reports and to measure")
    verb.add_argument(
        "--attempts", type=terminal.count, default=1_000_000, metavar="N", help="approximate number (default 1m)"
    )
    verb.add_argument("--days", type=between(1, _DAYS), default=7, metavar="N", help="number of days (default 7)")
    verb.add_argument("--until", type=terminal.day, metavar="DAY", help="the day after the last (default: today)")
    verb.add_argument(
        "--seed", type=between(0, MOST), default=1, metavar="N", help="seed of the random numbers (default 1)"
    )
    consent.add_consent(verb)
    terminal.add_common(verb, run)


def run(options: argparse.Namespace) -> int:
    """Write history; without --yes, show the plan and ask."""
    until = options.until or datetime.now(UTC).date()
    wanted = how_many(options.attempts, "attempt", form=",")
    plan = f"about {wanted} from {until - timedelta(days=options.days)} to before {until}"
    if not options.yes:
        if not options.json:
            print(f"would write {plan}")
        if not asyncio.run(consent.agreed(options, "analytics generate")):
            return 0
    progress = terminal.Progress("generate", options.attempts, "attempts")
    conninfo = one_connection.chosen(options)
    with telling(lambda: "what was written stays; the same command would write it again, with other ids"):
        made = generate(conninfo, options.attempts, options.days, until, options.seed, progress.tell)
    if options.json:
        records.one({"attempts": made.attempts, "archive": made.archive, "seconds": round(made.seconds, 3)})
    else:
        rate = (made.attempts + made.archive) / made.seconds
        attempts = how_many(made.attempts, "attempt", form=",")
        archived = how_many(made.archive, "archive row", form=",")
        print(f"wrote {attempts}, {archived} in {made.seconds:.1f} s, {rate:,.0f}/s")
    return 0


def generate(
    conninfo: str, attempts: int, days: int, until: date, seed: int, tell: Callable[[int], None] = lambda _: None
) -> Made:
    """Write about `attempts` attempts, and their archive, on `days` days before `until`."""
    from scripts.analytics.generate import rows  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.source import copying  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.source.columns import ARCHIVE, ATTEMPTS  # noqa: PLC0415

    begun = monotonic()
    written = {"attempts": 0, "archive": 0}
    first_day = until - timedelta(days=days)
    with (
        copying.session(conninfo, read_only=False) as numbering,
        copying.session(conninfo, read_only=False, timeout=timedelta(0)) as one,
        copying.session(conninfo, read_only=False, timeout=timedelta(0)) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        start = datetime(first_day.year, first_day.month, first_day.day, tzinfo=UTC)
        copying.rows(numbering, "history_create_from", at=start, ahead=days)
        stretches = list(_stretches(attempts / rows.TRIES, first_day, days, rows.share))
        room = max(_STRETCH * 8, 1)
        writing: list[Future[int]] = []

        def end_writing() -> None:
            for future, history in zip(writing, written, strict=False):
                written[history] += future.result()
            tell(written["attempts"])

        for day, number, count in stretches:
            [free] = copying.rows(numbering, "analytics_reserve", count=min(room, count * 8))
            first = rows.First(free.attempt, free.recipient, free.token)
            tables = rows.make(seed, day, number, count, first, until)
            end_writing()
            writing = [
                pool.submit(_write, session, history, table)
                for session, history, table in zip((one, other), (ATTEMPTS, ARCHIVE), tables, strict=True)
            ]
        end_writing()
    return Made(written["attempts"], written["archive"], monotonic() - begun)


def _stretches(
    recipients: float, first_day: date, days: int, share: Callable[[date], float]
) -> Iterator[tuple[date, int, int]]:
    """Day, number within the day, and recipients of each stretch."""
    all_days = [first_day + timedelta(days=number) for number in range(days)]
    total = sum(map(share, all_days))
    for day in all_days:
        left = round(recipients * share(day) / total)
        number = 0
        while left > 0:
            yield day, number, min(left, _STRETCH)
            left -= _STRETCH
            number += 1


def _write(session: Session, history: History, table: pa.Table) -> int:
    """Write one table by COPY into its day partitions, with the columns that the database has.

    The root's trigger, which announces dead letters, must not fire for them.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - it loads Arrow
    from pyarrow import csv  # noqa: PLC0415

    from scripts.analytics.source import copying  # noqa: PLC0415 - it loads Arrow

    there = {row.name for row in copying.rows(session, "analytics_columns", table=history.name)}
    kept = table.select([name for name in table.column_names if name in there])
    days = pc.strftime(table[history.instant], format="%Y%m%d")
    for day in pc.unique(days).to_pylist():
        sink = io.BytesIO()
        options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
        csv.write_csv(kept.filter(pc.equal(days, day)), sink, options)
        copying.copy_in(session, f"{history.name}_{day}", kept.column_names, sink.getvalue())
    return int(kept.num_rows)
