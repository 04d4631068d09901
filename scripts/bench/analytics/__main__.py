"""analytics — `python -m scripts.bench.analytics`: measures exports, reports and their effect on the queue

Owns: one run on its own embedded server: generate, export, report, the same questions as SQL on PostgreSQL, and a live
    queue with and without analytics running, alternately.
Guarantees: each step prints its wall time, the processor time of Java, Python and PostgreSQL together, and their peak
    memory. The last line is `export_rows_s=… report_s_10m=… report_vs_postgres=… delivery_change_pct=…
    p99_change_pct=…` for the last size. report_s_10m is scaled to 10 million attempts; report_vs_postgres is the time
    PostgreSQL takes divided by the report's. The two changes cover all rounds and are positive where analytics slows
    the queue down.
See: docs/explanation/analytics.md, "Measured".
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scripts.analytics import terminal
from scripts.analytics.generate.command import generate
from scripts.bench.analytics.live import Look, flowing, look, together
from scripts.bench.analytics.usage import measured
from scripts.bench.book import percentiles
from scripts.bench.core.server import LEAVES, running, settle_down
from shared.errors import PillarboxError
from shared.postgres import migrate
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    from scripts.bench.core.server import Server
    from scripts.bench.flow.ours import Ours

_DAYS: Final = 7
_BEFORE: Final = 5.0  # seconds of mail before each measurement
_TEN_MILLION: Final = 10_000_000


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
    parser.add_argument(
        "--var", type=Path, default=Path("var/bench-analytics"), metavar="DIR", help="working directory, emptied first"
    )
    options = parser.parse_args(arguments)
    try:
        for attempts in options.attempts:
            with running(options.var) as server:
                found = _measure(server, options, attempts, live=attempts == options.attempts[-1])
                print(found, flush=True)
    except PillarboxError as error:
        sys.stderr.write(f"bench-analytics: {error}\n")
        return error.exit_status
    return 0


def _measure(server: Server, options: argparse.Namespace, attempts: int, *, live: bool) -> str:
    uri = embedded.ensure_running(options.var)
    migrate.migrate(uri, LEAVES)
    print(f"{attempts:,} attempts", flush=True)
    with measured("generate", options.var):
        made = generate(uri, attempts, _DAYS, datetime.now(UTC).date(), 1)
    asyncio.run(_settled(server, uri))
    # A separate process: it lowers its priority and limits its cores, which must not affect the live queue.
    words = [sys.executable, "-m", "scripts.bench.analytics.steps", str(options.var), uri, str(_DAYS)]
    steps = subprocess.run(words, stdout=subprocess.PIPE, check=False)  # noqa: S603 - ours
    if steps.returncode:
        raise PillarboxError("analytics failed; its message is above")
    *lines, last = steps.stdout.decode().splitlines()
    print(*lines, sep="\n", flush=True)
    found = json.loads(last)
    figures = (
        f"export_rows_s={found['rows'] / found['export_s']:.0f} "
        f"report_s_10m={found['report_s'] * _TEN_MILLION / made.attempts:.1f} "
        f"report_vs_postgres={found['ask_s'] / found['report_s']:.2f}"
    )
    if not live:
        return figures
    change, p99 = asyncio.run(_live(options, uri))
    return f"{figures} delivery_change_pct={change:.1f} p99_change_pct={p99:.1f}"


async def _settled(server: Server, uri: str) -> None:
    """Vacuum and checkpoint: real history was written long ago and has been vacuumed since."""
    async with server.session(uri) as connection:
        await settle_down(connection)


async def _live(options: argparse.Namespace, uri: str) -> tuple[float, float]:
    """The fall of deliveries per second and the rise of p99 while analytics runs, in percent.

    Both are taken over all rounds; the worse of export and report counts.
    """
    seen: defaultdict[str, list[Look]] = defaultdict(list)
    async with flowing(options.var) as ours:
        for number in range(options.rounds):
            seen["quiet"].append(await _look(ours, options.seconds))
            lake = options.var / f"lake-{number}"
            words = (sys.executable, "-m", "scripts.bench.analytics.beside", uri, str(lake), str(_DAYS))
            beside = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            try:
                for step in ("export", "report"):
                    await _begun(beside, step)
                    seen[f"beside the {step}"].append(await _look(ours, options.seconds))
            finally:
                with suppress(ProcessLookupError):
                    beside.terminate()
                await beside.wait()
                shutil.rmtree(lake, ignore_errors=True)
            for name, looks in seen.items():
                print(f"round {number + 1}, {name}: {looks[-1]}", flush=True)
    quiet, *busy = (together(looks) for looks in seen.values())
    fallen = max(1 - each.rate / quiet.rate for each in busy)
    risen = max(percentiles(each.took)["p99"] / percentiles(quiet.took)["p99"] - 1 for each in busy)
    return 100 * fallen, 100 * risen


async def _look(ours: Ours, seconds: float) -> Look:
    """Measure mail after it has flowed for a while, so that analytics has had time to yield to it."""
    await look(ours, _BEFORE)
    return await look(ours, seconds)


async def _begun(beside: asyncio.subprocess.Process, step: str) -> None:
    """Return when analytics prints the step's name, as it does when it begins the step."""
    while (line := await beside.stdout.readline() if beside.stdout is not None else b"").decode().strip() != step:
        if not line:
            raise PillarboxError("analytics failed beside the live queue; its message is above")


if __name__ == "__main__":
    sys.exit(main())
