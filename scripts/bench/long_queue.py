"""long_queue — `python -m scripts.bench.long_queue`: mail and commands beside ten million recipients that wait

Owns: the whole system of scripts.bench.flow.ours; mail at a fixed rate through an empty queue, and again through one in
    which so many recipients wait; the commands of an operator on that queue.
Guarantees: the recipients that wait are of one message each, of three days, of 5,001 domains of which one has a third;
    a fifth was never tried, a fiftieth is on hold, the others were tried once to nine times. None falls due
    during the run. Latency is that of smtpd's clock and the archive's: from receipt until the result is recorded.
    Each command is a process of its own, timed as a whole; one that fails ends the run.
See: docs/explanation/operating-at-size.md.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from scripts.bench import run
from scripts.bench.core.server import content
from scripts.bench.flow import ours as whole
from scripts.bench.sink import sink
from scripts.bench.smtpd.cpu import each
from scripts.bench.smtpd.load import paced
from scripts.bench.source import DOMAINS
from scripts.scratch_var import emptied
from shared.errors import PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scripts.bench.flow.ours import Ours

_PORTION: Final = 50_000  # recipients that are queued by one statement
_SIZE: Final = 4096
_SESSIONS: Final = 8
_PATIENCE: Final = 600.0  # seconds that a span of mail may take
_progress = partial(run.progress, "bench-long-queue")

#: What an operator asks of a long queue, and then does to a thousand and to a twentieth of its recipients.
_COMMANDS: Final = (
    "status",
    "doctor --offline",
    "queue list",
    "queue list recipientdomain=d17.example",
    "queue list recipient=r4242@d17.example",
    "queue list last_error~full",
    "queue group state",
    "queue group recipientdomain",
    "queue shape",
    "queue top --times 1",
    "quarantine list",
    "partitions show",
    "queue trace <4242@sender.example>",
    "retention --dry-run",
    "queue hold --dry-run jobid=news-1",
    "queue hold --yes --limit 1000 jobid=news-2",
    "queue undo --yes 1",
    "queue delete --yes jobid=news-1",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print three tables and a line; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench.long_queue", description="Measure mail and commands beside a long queue."
    )
    parser.add_argument("--recipients", type=int, default=10_000_000, metavar="N", help="that wait (default 10000000)")
    parser.add_argument("--seconds", type=float, default=60, metavar="N", help="each span of mail (default 60)")
    parser.add_argument("--rate", type=float, default=200, metavar="N", help="messages a second (default 200)")
    parser.add_argument("--var", type=Path, default=Path("var/bench-long-queue"), metavar="DIR", help="emptied first")
    options = parser.parse_args(arguments)
    try:
        with emptied(options.var):
            print(asyncio.run(_measure(options)))
    except PillarboxError as error:
        _progress(str(error))
        return error.exit_status
    return 0


async def _measure(options: argparse.Namespace) -> str:
    """The tables; then the figures in one line."""
    spans: dict[str, dict[str, float]] = {}
    async with sink() as port, whole.running(options.var, port, {}) as ours:
        _progress("an empty queue")
        await _mail(ours, options.rate, 5)  # warms up
        spans["empty queue"] = await _mail(ours, options.rate, options.seconds)
        await _fill(ours, options.recipients)
        idle = {"long queue": await _idle(ours, options.seconds)}
        spans["long queue"] = await _mail(ours, options.rate, options.seconds)
        commands = {}
        for words in _COMMANDS:
            commands[words] = {"s": await _command(options.var, words)}
            _progress(f"pillarbox {words}: {commands[words]['s']:.1f} s")
        spans["after the commands"] = await _mail(ours, options.rate, options.seconds)
    _table("mail", spans)
    _table("no mail, of one processor", idle)
    _table("commands", commands)
    ratio = {name: spans["long queue"][name] / spans["empty queue"][name] for name in ("p99 ms", "PostgreSQL ms")}
    return (
        f"p99_ratio={ratio['p99 ms']:.2f} postgres_cpu_ratio={ratio['PostgreSQL ms']:.2f} "
        f"slowest_command_s={max(found['s'] for found in commands.values()):.1f} recipients={options.recipients}"
    )


async def _mail(ours: Ours, rate: float, seconds: float) -> dict[str, float]:
    """Mail at this rate for so long: milliseconds until its result, and of processor time a message."""
    [began] = await database.fetch(ours.connection, "doctor_clock")
    before, count = ours.spent(), int(rate * seconds)
    recipients = [f"n{number}@{DOMAINS[number % len(DOMAINS)]}" for number in range(count)]
    async with asyncio.timeout(_PATIENCE):
        await paced(ours.port, recipients, rate, _SESSIONS, content(_SIZE) + b".\r\n")
    deadline = monotonic() + _PATIENCE
    while True:
        [row] = await database.fetch(ours.connection, "bench_long_delivered", since=began.at, domains=list(DOMAINS))
        if row.recipients >= count:
            break
        if monotonic() > deadline:
            raise PillarboxError(f"{count - row.recipients} of {count} messages were not delivered")
        await asyncio.sleep(0.1)
    spent = {f"{name} ms": value for name, value in each(before, ours.spent(), count).items()}
    return {"p50 ms": row.p50, "p99 ms": row.p99, **spent}


async def _idle(ours: Ours, seconds: float) -> dict[str, float]:
    """What the daemons and PostgreSQL take of one processor while no mail comes, in percent."""
    before = ours.spent()
    await asyncio.sleep(seconds)
    return {f"{name} %": 100 * (value - before[name]) / seconds for name, value in ours.spent().items()}


async def _fill(ours: Ours, recipients: int) -> None:
    for begin in range(0, recipients, _PORTION):
        most = min(recipients, begin + _PORTION)
        await database.fetch(ours.connection, "bench_long_fill", begin=begin, most=most, total=recipients)
        if most % (20 * _PORTION) == 0 or most == recipients:
            _progress(f"{most} recipients wait")
    await ours.forget()


async def _command(var: Path, words: str) -> float:
    """Seconds that a command takes."""
    began = monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "scripts.cli",
        *words.split(),
        "--config",
        str(var),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    if process.returncode not in ({0, 1} if words.startswith("doctor") else {0}):  # 1: it found something
        raise PillarboxError(f"pillarbox {words}: exit status {process.returncode}: {said.decode().strip()}")
    return monotonic() - began


def _table(title: str, rows: dict[str, dict[str, float]]) -> None:
    table = Table(title=title, title_justify="left")
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    for what, row in rows.items():
        table.add_row(what, *(f"{row[name]:.2f}" if name in row else "" for name in columns))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
