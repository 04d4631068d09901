"""bench_core_report — medians, ratios, tables and the last line

Owns: what the rounds amount to. Pure but for printing.
Called by: scripts.bench_core.
Guarantees: a ratio compares figures of the same round, and its median is taken over the rounds; what was not measured
    says so and is never a number. The last line has one shape (FIGURES).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

#: The keys of the last line, in order.
FIGURES: Final = (
    "schedule_rows_s",
    "settle_rows_s",
    "settle_vs_pgmq",
    "drain_vs_pgqueuer",
    "wake_p50_ms",
    "wake_p99_ms",
    "backlog_ratio",
)
_RATIOS: Final = frozenset({"settle_vs_pgmq", "drain_vs_pgqueuer", "backlog_ratio"})
UNMEASURED: Final = "unmeasured"


@dataclass(slots=True)
class Cell:
    """One figure of one measurement in every round: `what` names it, `per` says what it counts."""

    table: str
    what: str
    values: dict[str, list[float]] = field(default_factory=dict)

    def median(self, column: str) -> float:
        """Over the rounds."""
        return median(self.values[column])


@dataclass(slots=True)
class Book:
    """Every cell of a run, in the order they were first measured."""

    settings: dict[str, str]
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, table: str, what: str, **values: float | None) -> None:
        """One round's figures; a None is left out."""
        cell = self.cells.setdefault((table, what), Cell(table, what))
        for column, value in values.items():
            if value is not None:
                cell.values.setdefault(column, []).append(value)

    def best(self, table: str, what: str = "") -> Cell | None:
        """The fastest cell of a table, of those whose name begins so; None where nothing was measured."""
        measured = [
            cell for (name, cell_name), cell in self.cells.items() if name == table and cell_name.startswith(what)
        ]
        return max(measured, key=lambda cell: cell.median("rows/s"), default=None)

    def figures(self) -> dict[str, float | None]:
        """The figures of the last line; None for what was not measured."""
        schedule, settle = self.best("schedule, 1 KB"), self.best("claim + settle")
        quiet, backlog = self.cells["wake-up", "quiet"], self.cells["wake-up", "deferred backlog"]
        return {
            "schedule_rows_s": schedule.median("rows/s") if schedule else None,
            "settle_rows_s": settle.median("rows/s") if settle else None,
            # pgmq at the batch the goal names; its best is in the table.
            "settle_vs_pgmq": _ratio(settle, self.best("pgmq", what="batch 100"), "rows/s"),
            "drain_vs_pgqueuer": _ratio(settle, self.best("PgQueuer"), "rows/s"),
            "wake_p50_ms": quiet.median("p50 ms"),
            "wake_p99_ms": quiet.median("p99 ms"),
            "backlog_ratio": _ratio(backlog, quiet, "claim ms"),
        }

    def document(self) -> dict[str, object]:
        """Everything, for programs: raw values by round."""
        cells = [{"table": c.table, "what": c.what, "rounds": c.values} for c in self.cells.values()]
        return {"settings": self.settings, "figures": self.figures(), "cells": cells, "notes": self.notes}

    def show(self, console: Console) -> None:
        """The tables."""
        console.print("  ".join(f"{name}={value}" for name, value in self.settings.items()))
        for name in dict.fromkeys(table for table, _ in self.cells):
            rows = [cell for cell in self.cells.values() if cell.table == name]
            columns = list(dict.fromkeys(column for cell in rows for column in cell.values))
            shown = Table(title=name, title_justify="left")
            shown.add_column("")
            for column in columns:
                shown.add_column(column, justify="right")
            for cell in rows:
                shown.add_row(cell.what, *(_number(cell.median(c)) if c in cell.values else "" for c in columns))
            console.print(shown)
        for note in self.notes:
            console.print(note, highlight=False, soft_wrap=True)


def last_line(figures: dict[str, float | None]) -> str:
    """The figures as one line."""
    return " ".join(f"{name}={_figure(name, figures[name])}" for name in FIGURES)


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return UNMEASURED
    return f"{value:.2f}" if name in _RATIOS or name.endswith("_ms") else f"{value:.0f}"


def _ratio(ours: Cell | None, theirs: Cell | None, column: str) -> float | None:
    """The median of the ratios of each round."""
    if ours is None or theirs is None:
        return None
    return median(a / b for a, b in zip(ours.values[column], theirs.values[column], strict=True))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"  # noqa: PLR2004 - digits beyond these are noise
