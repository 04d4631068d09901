"""find — `python -m scripts.bench.find`: the time to find a delivered message by its Message-ID in a long archive

Owns: a database of this many archive rows over 90 days, and its questions: those of `pillarbox queue trace`.
Guarantees: rows are analyzed and vacuumed, as after a night of autovacuum. Each question is for another Message-ID, one
    in ten for one that was never sent, on a connection of its own, as a command has it; the time is from the
    connection's being open to the last row of the trace. A message that is not found ends the run.
See: sql/README.md, "Finding what was sent"; tests/integration/queue/test_find.py, for the plan.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter
from typing import TYPE_CHECKING, Final

from scripts.bench import run
from scripts.bench.core.server import LEAVES, PARTITIONS
from scripts.bench.core.server import running as running_server
from shared.errors import PillarboxError
from shared.postgres import database, migrate

if TYPE_CHECKING:
    from collections.abc import Sequence

_DAYS: Final = 90
_PORTION: Final = 500_000  # rows written by one statement
_NAME: Final = "pillarbox bench"
_progress = partial(run.progress, "bench-find")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one line; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench.find", description="Measure the search by Message-ID."
    )
    parser.add_argument("--rows", type=int, default=10_000_000, metavar="N", help="archive rows (default 10000000)")
    parser.add_argument("--questions", type=int, default=500, metavar="N", help="Message-IDs looked for (default 500)")
    parser.add_argument("--database", metavar="URI", help="an empty database (default: an embedded server under --var)")
    parser.add_argument(
        "--var", type=Path, default=Path("var/bench-find"), metavar="DIR", help="working directory, emptied first"
    )
    options = parser.parse_args(arguments)
    try:
        with ExitStack() as stack:
            uri = options.database or stack.enter_context(running_server(options.var)).place.uri()
            times = asyncio.run(_measure(uri, options.rows, options.questions))
    except PillarboxError as error:
        _progress(str(error))
        return error.exit_status
    milliseconds = [1000 * each for each in times]
    print(
        f"find_ms_median={median(milliseconds):.1f} find_ms_p99={quantiles(milliseconds, n=100)[98]:.1f} "
        f"find_ms_most={max(milliseconds):.1f} rows={options.rows}"
    )
    return 0


async def _measure(uri: str, rows: int, questions: int) -> list[float]:
    """The seconds of each question."""
    migrate.migrate(uri, LEAVES, PARTITIONS)
    connection = await database.connect(uri, _NAME)
    try:
        await database.fetch(connection, "bench_find_days", days=_DAYS)
        for begin in range(0, rows, _PORTION):
            _progress(f"{begin} of {rows} rows")
            end = min(begin + _PORTION, rows)
            await database.fetch(connection, "bench_find_rows", begin=begin + 1, end=end, rows=rows, days=_DAYS)
        _progress("vacuum")
        await database.fetch(connection, "bench_vacuum")
    finally:
        await connection.close()
    random = Random(1)
    return [await _ask(uri, random.randint(1, rows), known=number % 10 > 0) for number in range(questions)]


async def _ask(uri: str, number: int, *, known: bool) -> float:
    connection = await database.connect(uri, _NAME)
    try:
        began = perf_counter()
        msgid = f"{number}{'' if known else '.never'}@mail.example"
        found = await database.fetch(connection, "queue_messages_with_msgid", msgid=msgid)
        messages = [row.message for row in found]
        trace = await database.fetch(connection, "queue_trace", messages=messages, limit=100) if messages else []
        took = perf_counter() - began
    finally:
        await connection.close()
    if [row.event for row in trace] != (["received", "success"] if known else []):
        raise PillarboxError(f"{msgid}: {[row.event for row in trace]} was found")
    return took


if __name__ == "__main__":
    sys.exit(main())
