"""analytics — `python -m scripts.bench.analytics`: measures exports, reports and their effect on the queue

Owns: one run on its own embedded server: generate, export, report, the same questions as SQL on PostgreSQL, and a live
    queue quiet, beside an export and beside a report, alternately: with analytics on all cores, on one of them, and on
    one of them with the export reading a replica.
Guarantees: each step prints its result as it ends: wall time, the processor time of Java, Python and PostgreSQL
    together, and their peak memory; every measurement of the live queue is printed, and the changes so far after each
    round, so that a run that is stopped has not been for nothing. SIGTERM and Ctrl-C end every process of the run. The
    last line is `export_rows_s=… report_s_10m=…
    report_vs_postgres_total=… search_s=… p99_change_pct_one_core=… p99_change_pct_shared=… p99_change_pct_replica=…`
    for the last size. report_s_10m is from the start of Spark, scaled to 10 million attempts; report_vs_postgres_total
    is the time that PostgreSQL takes divided by that of export, Spark's start and report together; search_s is by
    Message-ID, with the start of the command. A change is of p99 over all rounds, the worse of export and report;
    positive where mail is slower.
See: docs/explanation/analytics.md, "Measured".
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NoReturn

from scripts.analytics import terminal
from scripts.analytics.generate.command import generate
from scripts.bench.analytics.live import SHARE, Look, Mail, capacity, flowing, look, together
from scripts.bench.analytics.replica import following
from scripts.bench.analytics.usage import measured
from scripts.bench.core.server import LEAVES, running, settle_down
from shared.errors import PillarboxError
from shared.postgres import migrate
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from types import FrameType

    from scripts.bench.core.server import Server
    from scripts.bench.flow.ours import Ours

_DAYS: Final = 7
_AT_THE_LIMIT: Final = 10_000  # messages from which the quiet system's rate is taken
_BEFORE: Final = 5.0  # seconds of mail before each measurement
_TEN_MILLION: Final = 10_000_000
_BEGUN: Final = monotonic()
_INTERRUPTED: Final = 130


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.analytics", description="Measure the analytics.")
    parser.add_argument(
        "--attempts", type=terminal.count, nargs="+", default=[_TEN_MILLION], metavar="N",
        help="attempts of history; several sizes are measured in turn, each on a new server (default 10m)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds",
        type=float,
        default=30.0,
        metavar="S",
        help="length of each measurement of the live queue (default 30)",
    )
    parser.add_argument(
        "--rounds",
        type=terminal.count,
        default=3,
        metavar="N",
        help="rounds; each measures the queue alone, then beside analytics (default 3)",
    )
    parser.add_argument("--no-mail", action="store_true", help="leave out the live queue")
    parser.add_argument(
        "--var", type=Path, default=Path("var/bench-analytics"), metavar="DIR", help="working directory, emptied first"
    )
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        for attempts in options.attempts:
            with running(options.var) as server:
                found = _measure(
                    server, options, attempts, live=not options.no_mail and attempts == options.attempts[-1]
                )
                print(found, flush=True)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except PillarboxError as error:
        _say(str(error))
        return error.exit_status
    return 0


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    """End the run in the order of its blocks, which end its processes; a second signal does not disturb that."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(text: str) -> None:
    """Progress, with the seconds since the beginning."""
    sys.stderr.write(f"bench-analytics: {monotonic() - _BEGUN:.0f} s: {text}\n")


def _measure(server: Server, options: argparse.Namespace, attempts: int, *, live: bool) -> str:
    uri = embedded.ensure_running(options.var)
    migrate.migrate(uri, LEAVES)
    print(f"{attempts:,} attempts", flush=True)
    tell = terminal.Progress("generate", attempts, "attempts").tell
    with measured("generate", options.var):
        made = generate(uri, attempts, _DAYS, datetime.now(UTC).date(), 1, tell)
    _say("vacuum, checkpoint")
    asyncio.run(_settled(server, uri))
    found = _steps(options.var, uri)
    whole = found["start_s"] + found["report_s"]
    total = found["export_s"] + whole
    print(
        f"with export and start {total:.1f} s, PostgreSQL {found['ask_s']:.1f} s: "
        f"{'PostgreSQL' if found['ask_s'] < total else 'the lake'} is sooner; each further report takes {whole:.1f} s",
        flush=True,
    )
    figures = (
        f"export_rows_s={found['rows'] / found['export_s']:.0f} "
        f"report_s_10m={whole * _TEN_MILLION / made.attempts:.1f} "
        f"report_vs_postgres_total={found['ask_s'] / total:.2f} search_s={found['search_s']:.1f}"
    )
    if not live:
        return figures
    print(figures, flush=True)
    changes = asyncio.run(_live(options, uri))
    return " ".join([figures, *(f"p99_change_pct_{name}={change:.1f}" for name, change in changes.items())])


def _steps(var: Path, uri: str) -> dict[str, Any]:
    """Run the steps in a process of their own, as they lower its priority and limit its cores; what they took."""
    words = [sys.executable, "-m", "scripts.bench.analytics.steps", str(var), uri, str(_DAYS)]
    last = ""
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as steps,  # noqa: S603 - ours
        _ending(steps.pid),
    ):
        for line in steps.stdout or ():
            if line.startswith("{"):
                last = line
            else:
                print(line, end="", flush=True)
        if steps.wait():
            raise PillarboxError("analytics failed; its message is above")
    found: dict[str, Any] = json.loads(last)
    return found


@contextmanager
def _ending(group: int) -> Iterator[None]:
    """The processes of this session, Java among them, end with the block."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


async def _settled(server: Server, uri: str) -> None:
    """Vacuum and checkpoint: real history was written long ago and has been vacuumed since."""
    async with server.session(uri) as connection:
        await settle_down(connection)


async def _live(options: argparse.Namespace, uri: str) -> dict[str, float]:
    """The rise of p99 while analytics runs, in percent, for each way of running it."""
    _say("copies the server for the replica")
    with following(uri, options.var / "replica") as replica:
        ways = {"one_core": (uri, 1), "shared": (uri, os.cpu_count() or 1), "replica": (replica, 1)}
        seen: dict[str, defaultdict[str, list[Look]]] = {way: defaultdict(list) for way in ways}
        changes: dict[str, float] = {}
        async with flowing(options.var) as (ours, mail):
            _say(f"measures the quiet system at its limit: {_AT_THE_LIMIT:,} messages")
            most = await capacity(ours, mail, _AT_THE_LIMIT)
            pace = SHARE * most.rate
            print(f"quiet, at its limit: {most}; from here {pace:.0f} messages/s", flush=True)
            for number in range(1, options.rounds + 1):
                for way, (source, cores) in ways.items():
                    where = f"round {number} of {options.rounds}, {way}"
                    await _round(options, (ours, mail, pace), (source, cores), seen[way], where)
                    changes[way] = _change(way, seen[way])
    return changes


def _change(way: str, seen: defaultdict[str, list[Look]]) -> float:
    """The rise of p99 over all rounds so far, the worse of export and report, in percent; it is printed."""
    quiet, *busy = (together(looks) for looks in seen.values())
    change = 100 * max(each.p99 / quiet.p99 - 1 for each in busy)
    slower = 100 * max(1 - each.rate / quiet.rate for each in busy)
    print(f"{way}: p99 {change:+.1f} %, deliveries per second {-slower:+.1f} %", flush=True)
    return change


async def _round(
    options: argparse.Namespace,
    flow: tuple[Ours, Mail, float],
    analytics: tuple[str, int],
    seen: defaultdict[str, list[Look]],
    where: str,
) -> None:
    """Measure the queue quiet, beside an export, and beside a report on what the steps exported."""

    async def looked(name: str) -> None:
        _say(f"{where}: {name}")
        seen[name].append(await _look(*flow, options.seconds))
        print(f"{where}, {name}: {seen[name][-1]}", flush=True)

    await looked("quiet")
    for step in ("export", "report"):
        async with _beside(step, options.var, *analytics):
            await looked(f"beside the {step}")


@asynccontextmanager
async def _beside(step: str, var: Path, source: str, cores: int) -> AsyncIterator[None]:
    """Analytics repeats this step for the block."""
    scratch = var / "lake-beside"
    lake = scratch if step == "export" else var / "lake"
    words = (sys.executable, "-m", "scripts.bench.analytics.beside", step, source, str(lake), str(_DAYS), str(cores))
    begun = asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, start_new_session=True)
    beside = await begun
    try:
        with _ending(beside.pid):
            await _begun(beside, step)
            yield
            if beside.returncode is not None:
                raise PillarboxError(f"the {step} beside the live queue ended; its message is above")
    finally:
        await beside.wait()
        shutil.rmtree(scratch, ignore_errors=True)


async def _look(ours: Ours, mail: Mail, pace: float, seconds: float) -> Look:
    """Measure mail after it has flowed for a while, so that analytics has had time to yield to it."""
    await look(ours, mail, pace, _BEFORE)
    return await look(ours, mail, pace, seconds)


async def _begun(beside: asyncio.subprocess.Process, step: str) -> None:
    """Return when analytics prints the step's name, as it does when it begins the step."""
    while (line := await beside.stdout.readline() if beside.stdout is not None else b"").decode().strip() != step:
        if not line:
            raise PillarboxError("analytics failed beside the live queue; its message is above")


if __name__ == "__main__":
    sys.exit(main())
