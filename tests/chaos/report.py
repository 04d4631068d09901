"""report — the outcomes of a run as a table, as one line, as JSON and as a page of the documentation

Owns: the columns; docs/explanation/crash-table.md between its marks.
Called by: tests/chaos/__main__.py.
Guarantees: the page's table is written by runs alone: a row for each cell with the worst of its last run's seeds.
See: tests/chaos/run_cell.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.cells import CELLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.run_cell import Outcome

PAGE: Final = Path("docs/explanation/crash-table.md")
BEGIN: Final = "<!-- written by `make chaos ARGS=--write`: begin -->"
END: Final = "<!-- end -->"
_NAME: Final = re.compile(r"--only ([a-z-]+)\"")
_HEAD: Final = (
    "| fault | instant | accepted | lost | duplicated | bound | recovery (limit) | command |",
    "|---|---|---|---|---|---|---|---|",
)


def heading() -> str:
    """Over the rows."""
    return (
        f"{'cell':26} {'seed':>4} {'accepted':>8} {'lost':>4} {'dup.':>4} {'bound':>5} {'refused':>7} {'unknown':>7} "
        f"{'accepts':>7} {'delivers':>8} {'clears':>6} {'took':>5}"
    )


def row(outcome: Outcome) -> str:
    """One outcome."""
    f = outcome.figures
    return (
        f"{outcome.cell.name:26} {outcome.seed:4} {f.accepted:8} {f.lost:4} {f.duplicated:4} {outcome.bound:5} "
        f"{f.refused:7} {f.unknown:7} {outcome.accepts:7.1f} {outcome.delivers:8.1f} {outcome.clears:6.1f} "
        f"{outcome.took:5.0f}"
    )


def totals(outcomes: Sequence[Outcome], stuck: Sequence[str] = ()) -> dict[str, int]:
    """The sums of a run; `stuck` are the cells that came to no end."""
    return {
        "faults": sum(outcome.cell.strike != "nothing" for outcome in outcomes),
        "accepted": sum(outcome.figures.accepted for outcome in outcomes),
        "lost": sum(outcome.figures.lost for outcome in outcomes),
        "duplicates": sum(outcome.figures.duplicated for outcome in outcomes),
        "bound": sum(outcome.bound for outcome in outcomes),
        "broken": sum(bool(outcome.broken()) for outcome in outcomes) + len(stuck),
    }


def summary(outcomes: Sequence[Outcome], stuck: Sequence[str] = ()) -> str:
    """The one line at the end."""
    return " ".join(f"{name}={value}" for name, value in totals(outcomes, stuck).items())


def as_json(outcomes: Sequence[Outcome], stuck: Sequence[str] = ()) -> dict[str, Any]:
    """For programs."""
    rows = [
        {
            "cell": outcome.cell.name,
            "seed": outcome.seed,
            "accepted": outcome.figures.accepted,
            "lost": outcome.figures.lost,
            "duplicates": outcome.figures.duplicated,
            "bound": outcome.bound,
            "altered": outcome.figures.altered,
            "refused": outcome.figures.refused,
            "unknown": outcome.figures.unknown,
            "surprising": outcome.figures.surprising,
            "accepts_seconds": round(outcome.accepts, 2),
            "delivers_seconds": round(outcome.delivers, 2),
            "clears_seconds": round(outcome.clears, 2),
            "broken": outcome.broken(),
        }
        for outcome in outcomes
    ]
    return {**totals(outcomes, stuck), "cells": rows, "stuck": list(stuck)}


def rows(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The page's row of each cell, by its name, with the worst of its seeds."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.cell.name, []).append(outcome)
    return {name: _row(seeds) for name, seeds in found.items()}


def _row(seeds: Sequence[Outcome]) -> str:
    cell = seeds[0].cell
    recovery = max(o.clears if cell.recovers == "lease" else max(o.accepts, o.delivers) for o in seeds)
    lost, doubled = max(o.figures.lost for o in seeds), max(seeds, key=lambda o: o.figures.duplicated)
    limit = f"a lease, {cell.lease:.0f} s" if cell.recovers == "lease" else "5 s"
    return (
        f"| {cell.fault} | {cell.instant} | {sum(o.figures.accepted for o in seeds)} | {lost} "
        f"| {doubled.figures.duplicated} | {doubled.bound} | {recovery:.1f} s ({limit}) "
        f'| `make chaos ARGS="--only {cell.name}"` |'
    )


def write(outcomes: Sequence[Outcome], path: Path = PAGE) -> None:
    """Put the rows of these outcomes in their places on the page; rows of cells that did not run stay."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    table, _, after = rest.partition(END)
    there = {match[1]: line for line in table.splitlines() if (match := _NAME.search(line))} | rows(outcomes)
    lines = [there[cell.name] for cell in CELLS if cell.name in there]
    columns = [[int(column) for column in line.split("|")[3:7]] for line in lines]
    sums = dict(zip(("accepted", "lost", "duplicates", "bound"), map(sum, zip(*columns, strict=True)), strict=True))
    together = " ".join(f"{name}={value}" for name, value in {"faults": len(lines) - 1, **sums}.items())
    text = "\n".join([*_HEAD, *lines, "", f"Together: `{together}`."])
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
