"""bench_book — the cells of a run: medians, ratios, tables and the last line

Owns: what the rounds amount to, whatever was measured. Pure but for printing.
Called by: the reports of the benchmarks, scripts.bench_*_report, each with figures of its own.
Guarantees: a ratio compares figures of the same round, and its median is taken over the rounds; what was not measured
    says so and is never a number. The last line has one shape: `name=figure` in the order of `figures`, with two
    digits behind the point but for what is counted a second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, ClassVar, Final

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

POSTFIX: Final = "Postfix"
_UNMEASURED: Final = "unmeasured"


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
class Book(ABC):
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

    def median(self, table: str, what: str, column: str) -> float | None:
        """Of one cell, over the rounds; None where it was not measured."""
        cell = self.cells.get((table, what))
        return cell.median(column) if cell and column in cell.values else None

    @abstractmethod
    def figures(self) -> dict[str, float | None]:
        """The figures of the last line, in its order; None for what was not measured."""

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


@dataclass(slots=True)
class BesidePostfix(Book):
    """Every cell of a run in which Postfix takes turns with ours; both are columns of it."""

    ours: ClassVar[str]

    def ratio(self, table: str, what: str) -> float | None:
        """The median over the rounds of ours to Postfix's; None where one of them was not measured."""
        cell = self.cells.get((table, what))
        if cell is None or not {self.ours, POSTFIX} <= cell.values.keys():
            return None
        return median(ratios(cell.values[self.ours], cell.values[POSTFIX]))

    def compare(self) -> None:
        """Put each ratio beside its cell, once all rounds are done."""
        for cell in self.cells.values():
            if cell.values.keys() == {self.ours, POSTFIX}:
                cell.values["ratio"] = ratios(cell.values[self.ours], cell.values[POSTFIX])


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Of the same round each."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def percentiles(ordered: Sequence[float]) -> dict[str, float]:
    """The 50th and the 99th of seconds in order, in milliseconds."""
    return {f"p{each}": 1e3 * ordered[min(len(ordered) - 1, len(ordered) * each // 100)] for each in (50, 99)}


def named(size: int) -> str:
    """1 KB, 100 KB, 1 MB."""
    return f"{size // 2**20} MB" if size >= 2**20 else f"{size // 2**10} KB"


def last_line(figures: Mapping[str, float | None]) -> str:
    """The figures as one line."""
    return " ".join(f"{name}={_figure(name, value)}" for name, value in figures.items())


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return _UNMEASURED
    return f"{value:.0f}" if name.endswith("_s") else f"{value:.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"  # noqa: PLR2004 - digits beyond these are noise
