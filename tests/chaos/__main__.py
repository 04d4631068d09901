"""chaos — runs the crash matrix and prints its results, as `python -m tests.chaos`

Owns: the options of `make chaos`; the table during the run and the line at the end.
Guarantees: exit status 0 if every promise was kept; 1 if one was broken, which is printed under its row; 69 if none
    was, but a cell could not run because a program or library is missing, which is named. A cell that does not end is
    broken, and the others still run. `--write` writes the rows into docs/explanation/crash-table.md, but only after a
    run in which nothing was broken.
See: tests/chaos/cells.py; docs/explanation/crash-table.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos import report
from tests.chaos.arena import CannotRunError
from tests.chaos.cells import BY_NAME, CELLS
from tests.chaos.run_cell import run_cell
from tests.fixtures.servers.killable import killable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.cells import Cell
    from tests.fixtures.servers.killable import Killable


async def run_all(
    cells: list[Cell], seeds: range, server: Killable, folder: Path, say: Callable[[str], None]
) -> report.Run:
    """Run each cell with each seed, one after the other, and print a row for each."""
    run = report.Run()
    for seed in seeds:
        for cell in cells:
            await asyncio.to_thread(server.start)
            try:
                async with asyncio.timeout(cell.stuck):
                    outcome = await run_cell(cell, server, folder / f"{cell.name}-{seed}", seed)
            except CannotRunError as missing:
                run.unrun.append(f"{cell.name}, seed {seed}: could not run: {missing}")
                say(f"  {run.unrun[-1]}")
                continue
            except Exception as error:  # noqa: BLE001 - the other cells run after any error
                run.stuck.append(f"{cell.name}, seed {seed}: {error!r}")
                say(f"  BROKEN: {run.stuck[-1]}")
                continue
            run.outcomes.append(outcome)
            say("\n  BROKEN: ".join([report.row(outcome), *outcome.broken()]))
    return run


def main(argv: list[str] | None = None) -> int:
    """Parse the options, run, and print."""
    parser = argparse.ArgumentParser(prog="chaos", description="Faults by instants, under load: nothing is lost.")
    parser.add_argument("--short", action="store_true", help="a row for each kind of fault, within minutes")
    parser.add_argument(
        "--only", action="append", metavar="CELL", choices=sorted(BY_NAME), help="this cell; repeatable"
    )
    parser.add_argument("--seeds", type=int, default=1, help="run everything so many times, each with its own draws")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--list", action="store_true", help="say which cells there are")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--write", action="store_true", help=f"put the rows of these cells into {report.PAGE}")
    arguments = parser.parse_args(argv)
    chosen = [BY_NAME[name] for name in arguments.only or ()] or [c for c in CELLS if c.short or not arguments.short]
    if arguments.list:
        for cell in chosen:
            print(f"{cell.name:26} {cell.fault}: {cell.instant}")
        return 0
    with ExitStack() as stack:
        server = stack.enter_context(killable())
        folder = Path(tempfile.mkdtemp(prefix="pillarbox-chaos-"))
        say = _silent if arguments.json else partial(print, flush=True)
        say(report.heading())
        seeds = range(arguments.seed, arguments.seed + arguments.seeds)
        run = asyncio.run(run_all(chosen, seeds, server, folder, say))
    print(json.dumps(report.as_json(run)) if arguments.json else report.summary(run))
    for line in run.unrun:
        print(f"chaos: {line}", file=sys.stderr)
    if run.broken:
        print(f"chaos: promises were broken; logs: {folder}", file=sys.stderr)
        return run.status
    shutil.rmtree(folder)
    if arguments.write:
        report.write(run.outcomes)
    return run.status


def _silent(_: str) -> None:
    """Where a program reads."""


if __name__ == "__main__":
    sys.exit(main())
