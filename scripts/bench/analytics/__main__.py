"""bench — `python -m scripts.bench.analytics`: measures exports and reports of history, and their effect on the queue

Owns: one run on an embedded server of its own: generate, export, report, the same questions asked of PostgreSQL, and
    a live queue with and without the analytics beside it, in turns.
Guarantees: each step says its wall time, the processor time of Java, Python and PostgreSQL together, and the most
    memory they had. The last line is `export_rows_s=… report_s_10m=… report_vs_postgres=… delivery_change_pct=…
    p99_change_pct=…`, of the last size; report_s_10m is scaled to 10 million attempts where that size is another;
    report_vs_postgres says how many times as long PostgreSQL takes. Changes are of all rounds together, positive where
    the queue is worse off; they are measured beside history of the last size.
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
from scripts.bench.analytics import live as bench_live
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
_BEFORE: Final = 5.0  # seconds that mail flows before a look
_TEN_MILLION: Final = 10_000_000


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.analytics", description="Measure the analytics.")
    parser.add_argument(
        "--attempts", type=terminal.count, nargs="+", default=[_TEN_MILLION], metavar="N",
        help="sizes, one after the other, each on a new server (10m)",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="of each look at the live queue (30)")
    parser.add_argument(
        "--rounds", type=terminal.count, default=3, metavar="N", help="quiet and busy looks, in turns (3)"
    )
    parser.add_argument("--var", type=Path, default=Path("var/bench-analytics"), metavar="DIR", help="emptied first")
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
    # In a process of its own: the priority and the cores it gives itself must not be those of the live queue.
    words = [sys.executable, "-m", "scripts.bench.analytics.steps", str(options.var), uri, str(_DAYS)]
    steps = subprocess.run(words, stdout=subprocess.PIPE, check=False)  # noqa: S603 - ours
    if steps.returncode:
        raise PillarboxError("the analytics died; their message is above")
    *told, last = steps.stdout.decode().splitlines()
    print(*told, sep="\n", flush=True)
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
    """As history is in life: written long ago, and vacuumed since."""
    async with server.session(uri) as connection:
        await settle_down(connection)


async def _live(options: argparse.Namespace, uri: str) -> tuple[float, float]:
    """By how much, in percent, deliveries a second fall and p99 rises beside an export and a report.

    Of what was seen at the export and at the report, in all rounds together, the worse counts.
    """
    seen: defaultdict[str, list[bench_live.Look]] = defaultdict(list)
    async with bench_live.flowing(options.var) as ours:
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
    quiet, *busy = (bench_live.together(looks) for looks in seen.values())
    fallen = max(1 - look.rate / quiet.rate for look in busy)
    risen = max(percentiles(look.took)["p99"] / percentiles(quiet.took)["p99"] - 1 for look in busy)
    return 100 * fallen, 100 * risen


async def _look(ours: Ours, seconds: float) -> bench_live.Look:
    """A look at mail that has flowed for a while, as it does where it is live: what gives way to it has noticed."""
    await bench_live.look(ours, _BEFORE)
    return await bench_live.look(ours, seconds)


async def _begun(beside: asyncio.subprocess.Process, step: str) -> None:
    """Return when the analytics say that they begin with a step."""
    while (line := await beside.stdout.readline() if beside.stdout is not None else b"").decode().strip() != step:
        if not line:
            raise PillarboxError("the analytics beside the queue died; their message is above")


if __name__ == "__main__":
    sys.exit(main())
