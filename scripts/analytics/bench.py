"""bench — `python -m scripts.analytics.bench`: how fast history is exported and reported on, and what the queue feels

Owns: one run on an embedded server of its own: generate, export, report, the same questions asked of PostgreSQL, and
    a live queue with and without the analytics beside it, in turns.
Called by: `make bench-analytics`.
Guarantees: the last line is `export_rows_s=… report_s_10m=… report_vs_postgres=… delivery_change_pct=…
    p99_change_pct=…`; report_s_10m is scaled to 10 million attempts where the run has others; report_vs_postgres says
    how many times as long PostgreSQL takes. Changes are medians over rounds, positive where the queue is worse off.
See: docs/explanation/analytics.md, "Measured".
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import statistics
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from scripts.analytics import export, report, report_questions, session, terminal
from scripts.analytics.generate import generate
from scripts.analytics.runner import OnSpark
from scripts.bench_core_server import LEAVES, fill, running
from shared import embedded, migrate
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from scripts.bench_core_server import Server

_DAYS: Final = 7

_TEN_MILLION: Final = 10_000_000


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.analytics.bench", description="Measure the analytics.")
    parser.add_argument("--attempts", type=terminal.count, default=_TEN_MILLION, metavar="N", help="default 10m")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="of each look at the live queue (30)")
    parser.add_argument(
        "--rounds", type=terminal.count, default=3, metavar="N", help="quiet and busy looks, in turns (3)"
    )
    parser.add_argument("--var", type=Path, default=Path("var/bench-analytics"), metavar="DIR", help="emptied first")
    options = parser.parse_args(arguments)
    try:
        with running(options.var) as server:
            print(_measure(server, options))
    except PillarboxError as error:
        sys.stderr.write(f"bench-analytics: {error}\n")
        return error.exit_status
    return 0


def _measure(server: Server, options: argparse.Namespace) -> str:
    uri = embedded.ensure_running(options.var)
    migrate.migrate(uri, LEAVES)
    until = datetime.now(UTC).date()
    made = _step("generate", lambda: generate(uri, options.attempts, _DAYS, until, 1))
    print(f"generate: {(made.attempts + made.archive) / made.seconds:,.0f} rows/s")
    folder = options.var / "lake"
    with session.started(light=True) as spark:
        done = _step("export", lambda: export.export(uri, folder, OnSpark(spark)))
        rate = done.rows / done.seconds
        reported, asked = _report(spark, uri, folder, until, made.attempts)
    change, p99 = asyncio.run(_live(server, uri, options, folder))
    scaled = reported * _TEN_MILLION / made.attempts
    return (
        f"export_rows_s={rate:.0f} report_s_10m={scaled:.1f} report_vs_postgres={asked / reported:.2f} "
        f"delivery_change_pct={change:.1f} p99_change_pct={p99:.1f}"
    )


def _report(spark: Any, uri: str, folder: Path, until: date, attempts: int) -> tuple[float, float]:
    """Seconds of the report over the lake, and of the same questions asked of PostgreSQL."""
    asked = report.Asked(until - timedelta(days=_DAYS), until, folder)
    begun = monotonic()
    _step(f"report on {attempts:,} attempts", lambda: report.make(spark, asked, {}))
    reported = monotonic() - begun
    begun = monotonic()
    _step("the same of PostgreSQL", lambda: report_questions.ask(uri, asked.since, asked.until, asked.top))
    return reported, monotonic() - begun


async def _live(server: Server, uri: str, options: argparse.Namespace, folder: Path) -> tuple[float, float]:
    """By how much, in percent, deliveries a second fall and p99 rises beside an export and a report, over rounds."""
    need = int(options.seconds * 500 * 2 * options.rounds * 1.2)
    async with server.session(uri) as connection:
        await fill(connection, need, 1024)
    quiet, busy = [], []
    for number in range(options.rounds):
        quiet.append(await _look(uri, options.seconds))
        again = folder.with_name(f"lake-{number}")
        words = (sys.executable, "-m", "scripts.analytics.bench_beside", uri, str(again))
        beside = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        try:
            if beside.stdout is None or not await beside.stdout.readline():  # a line once its Spark is there
                raise PillarboxError("the analytics beside the queue died; their message is above")
            busy.append(await _look(uri, options.seconds))
        finally:
            with suppress(ProcessLookupError):
                beside.terminate()
            await beside.wait()
            shutil.rmtree(again, ignore_errors=True)
        for name, look in (("quiet", quiet[-1]), ("beside the analytics", busy[-1])):
            told = f"{look['deliveries_s']:.0f} deliveries/s, p50 {look['p50_ms']:.1f} ms, p99 {look['p99_ms']:.1f} ms"
            print(f"round {number + 1}, {name}: {told}", flush=True)

    def change(figure: str) -> float:
        return statistics.median((b[figure] / q[figure] - 1) * 100 for q, b in zip(quiet, busy, strict=True))

    return -change("deliveries_s"), change("p99_ms")


async def _look(uri: str, seconds: float) -> dict[str, float]:
    live = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scripts.analytics.bench_live", uri, str(seconds)), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await live.communicate()
    if live.returncode:
        raise PillarboxError("the live queue's worker died; its message is above")
    found: dict[str, float] = json.loads(out)
    return found


def _step[T](name: str, work: Callable[[], T]) -> T:
    """Do one step, and say how long it took and how much memory was used."""
    begun = monotonic()
    answer = work()
    mine, children = (
        resource.getrusage(who).ru_maxrss >> 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(f"{name}: {monotonic() - begun:.1f} s, at most {mine} MB here, {children} MB in a finished child", flush=True)
    return answer


if __name__ == "__main__":
    sys.exit(main())
