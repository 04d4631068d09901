"""report — prints the outcomes of a run as a table, a line, JSON and a page of the documentation

Owns: the columns; docs/explanation/crash-table.md between its marks.
Guarantees: only runs write the page's table: a row for each cell with the worst of its last run's seeds, and its
    shortest, median and longest recovery if there were several. A cell that could not run is distinguished from a
    broken promise by a separate line and exit status.
See: tests/chaos/run_cell.py; sysexits.h.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.cells import CELLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.run_cell import Outcome

PAGE: Final = Path("docs/explanation/crash-table.md")
BEGIN: Final = "<!-- written by `make chaos ARGS=--write`: begin -->"
END: Final = "<!-- end -->"
MISSING: Final = 69  # EX_UNAVAILABLE
_NAME: Final = re.compile(r"--only ([a-z-]+)\"")
_HEAD: Final = (
    "| fault | instant | accepted | lost | duplicated | bound | recovery (limit) | command |",
    "|---|---|---|---|---|---|---|---|",
)


def heading() -> str:
    """The heading of the rows."""
    return (
        f"{'cell':26} {'seed':>4} {'accepted':>8} {'lost':>4} {'dup.':>4} {'bound':>5} {'refused':>7} {'unknown':>7} "
        f"{'accepts':>7} {'delivers':>8} {'clears':>6} {'recovery (limit)':>16} {'took':>5}"
    )


def row(outcome: Outcome) -> str:
    """The row of one outcome."""
    f = outcome.figures
    return (
        f"{outcome.cell.name:26} {outcome.seed:4} {f.accepted:8} {f.lost:4} {f.duplicated:4} {outcome.bound:5} "
        f"{f.refused:7} {f.unknown:7} {outcome.accepts:7.1f} {outcome.delivers:8.1f} {outcome.clears:6.1f} "
        f"{outcome.recovery:9.1f} ({outcome.cell.limit:4.1f}) {outcome.took:5.0f}"
    )


@dataclass(slots=True)
class Run:
    """outcomes: of the cells that ended. stuck: the cells that did not. unrun: the cells that could not run, with the
    missing program or library.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    unrun: list[str] = field(default_factory=list)

    @property
    def broken(self) -> int:
        """The number of cells that broke a promise."""
        return sum(bool(outcome.broken()) for outcome in self.outcomes) + len(self.stuck)

    @property
    def status(self) -> int:
        """The exit status: 0 if every promise was kept, 1 if one was broken, 69 if only a program was missing."""
        return 1 if self.broken else MISSING if self.unrun else 0


def totals(run: Run) -> dict[str, int]:
    """The sums of a run."""
    return {
        "faults": sum(outcome.cell.strike != "nothing" for outcome in run.outcomes),
        "accepted": sum(outcome.figures.accepted for outcome in run.outcomes),
        "lost": sum(outcome.figures.lost for outcome in run.outcomes),
        "duplicates": sum(outcome.figures.duplicated for outcome in run.outcomes),
        "bound": sum(outcome.bound for outcome in run.outcomes),
        "broken": run.broken,
        "could_not_run": len(run.unrun),
    }


def summary(run: Run) -> str:
    """The last line."""
    return " ".join(f"{name}={value}" for name, value in totals(run).items())


def as_json(run: Run) -> dict[str, Any]:
    """The run as JSON."""
    rows = [
        {
            "cell": outcome.cell.name,
            "seed": outcome.seed,
            "accepted": outcome.figures.accepted,
            "lost": outcome.figures.lost,
            "duplicates": outcome.figures.duplicated,
            "bound": outcome.bound,
            "unexplained": outcome.unexplained,
            "altered": outcome.figures.altered,
            "refused": outcome.figures.refused,
            "unknown": outcome.figures.unknown,
            "surprising": outcome.figures.surprising,
            "accepts_seconds": round(outcome.accepts, 2),
            "delivers_seconds": round(outcome.delivers, 2),
            "clears_seconds": round(outcome.clears, 2),
            "recovery_seconds": round(outcome.recovery, 2),
            "limit_seconds": outcome.cell.limit,
            "broken": outcome.broken(),
        }
        for outcome in run.outcomes
    ]
    return {**totals(run), "cells": rows, "stuck": run.stuck, "unrun": run.unrun}


def rows(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The page's row of each cell, by its name, with the worst of its seeds."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.cell.name, []).append(outcome)
    return {name: _row(seeds) for name, seeds in found.items()}


def _row(seeds: Sequence[Outcome]) -> str:
    cell = seeds[0].cell
    lost, doubled = max(o.figures.lost for o in seeds), max(seeds, key=lambda o: o.figures.duplicated)
    recovery = _spread([o.recovery for o in seeds])
    return (
        f"| {cell.fault} | {cell.instant} | {sum(o.figures.accepted for o in seeds)} | {lost} "
        f"| {doubled.figures.duplicated} | {doubled.bound} | {recovery} s ({cell.limit:g} s) "
        f'| `make chaos ARGS="--only {cell.name}"` |'
    )


def _spread(values: Sequence[float]) -> str:
    """Minimum, median and maximum; a single value alone."""
    three = (min(values), median(values), max(values))
    return " / ".join(f"{value:.1f}" for value in (three if len(values) > 1 else three[:1]))


def write(outcomes: Sequence[Outcome], path: Path = PAGE) -> None:
    """Write the rows of these outcomes into the page; rows of cells that did not run stay."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    table, _, after = rest.partition(END)
    there = {match[1]: line for line in table.splitlines() if (match := _NAME.search(line))} | rows(outcomes)
    lines = [there[cell.name] for cell in CELLS if cell.name in there]
    columns = [[int(column) for column in line.split("|")[3:7]] for line in lines]
    sums = dict(zip(("accepted", "lost", "duplicates", "bound"), map(sum, zip(*columns, strict=True)), strict=True))
    together = " ".join(f"{name}={value}" for name, value in {"faults": len(lines) - 1, **sums}.items())
    text = "\n".join([*_HEAD, *lines, "", f"Together: `{together}`."])
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
