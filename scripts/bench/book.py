"""book — the results of a run: medians, ratios, tables and the last line

Owns: the results of every benchmark, on the screen and as Markdown. Pure except for printing.
Guarantees: a ratio compares figures of the same round. Every figure is shown with its minimum, median and maximum over
    the rounds; rounds of other runs, perhaps on other machines, can be added. The worst cell is named beside the
    figures. A figure that was not measured is shown as unmeasured, never as a number. The last line has one form,
    `name=median` in the order of `by_round`, with two decimals; rates per second have none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from rich.table import Table

from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

POSTFIX: Final = "Postfix"
_UNMEASURED: Final = "unmeasured"


@dataclass(slots=True)
class Cell:
    """One row of a table: `what` names it; `values` has each column's value in every round."""

    table: str
    what: str
    values: dict[str, list[float]] = field(default_factory=dict)

    def median(self, column: str) -> float:
        """The column's median over the rounds."""
        return median(self.values[column])


@dataclass(slots=True)
class Book(ABC):
    """Every cell of a run, in the order they were first measured."""

    settings: dict[str, str]
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    others: list[dict[str, str]] = field(default_factory=list)  # settings of the runs whose rounds were added

    def add(self, table: str, what: str, **values: float | None) -> None:
        """Add one round's figures; None is skipped."""
        cell = self.cells.setdefault((table, what), Cell(table, what))
        for column, value in values.items():
            if value is not None:
                cell.values.setdefault(column, []).append(value)

    def median(self, table: str, what: str, column: str) -> float | None:
        """One cell's median over the rounds; None if it was not measured."""
        cell = self.cells.get((table, what))
        return cell.median(column) if cell and column in cell.values else None

    def rounds(self, table: str, what: str, column: str) -> Sequence[float]:
        """One cell's values in every round; empty if it was not measured."""
        cell = self.cells.get((table, what))
        return cell.values.get(column, ()) if cell else ()

    def absorb(self, document: Mapping[str, Any], name: str) -> None:
        """Add the rounds of another run; PillarboxError if that run measured other cells."""
        theirs = {(each["table"], each["what"]): each["rounds"] for each in document["cells"]}
        if self.cells and {key: set(cell.values) for key, cell in self.cells.items()} != {
            key: set(rounds) for key, rounds in theirs.items()
        }:
            raise PillarboxError(f"{name}: the run measured other cells; allowed: runs with the same sizes and peers")
        for (table, what), rounds in theirs.items():
            values = self.cells.setdefault((table, what), Cell(table, what)).values
            for column, more in rounds.items():
                values.setdefault(column, []).extend(more)
        self.others.append(document["settings"])
        self.notes += [note for note in document["notes"] if note not in self.notes]

    @abstractmethod
    def by_round(self) -> dict[str, Sequence[float]]:
        """The figures of the last line, in its order, each with its value in every round; empty if unmeasured."""

    def worst(self) -> list[str]:
        """Lines that name the cells in which a peer is ahead."""
        return []

    def figures(self) -> dict[str, float | None]:
        """The median of each figure; None if it was not measured."""
        return {name: median(values) if values else None for name, values in self.by_round().items()}

    def document(self) -> dict[str, object]:
        """The whole run for programs: raw values by round."""
        cells = [{"table": c.table, "what": c.what, "rounds": c.values} for c in self.cells.values()]
        return {"settings": self.settings, "figures": self.figures(), "cells": cells, "notes": self.notes}

    def tables(self) -> list[Shown]:
        """Every table as text, the figures first."""
        spread = [(name, *map(_number, _three(values))) for name, values in self.by_round().items() if values]
        made = [Shown("figures", ("least", "median", "most"), spread)]
        for name in dict.fromkeys(table for table, _ in self.cells):
            rows = [cell for cell in self.cells.values() if cell.table == name]
            columns = list(dict.fromkeys(column for cell in rows for column in cell.values))
            lines = [(cell.what, *(_spread(cell.values.get(column, ())) for column in columns)) for cell in rows]
            made.append(Shown(name, tuple(columns), lines))
        return made

    def runs(self) -> list[str]:
        """One line of settings for each run."""
        return [
            "  ".join(f"{name}={value}" for name, value in run.items()) for run in (self.settings, *self.others) if run
        ]

    def show(self, console: Console) -> None:
        """Print the settings, the tables, the worst cells and the notes."""
        for line in self.runs():
            console.print(line)
        for table in self.tables():
            shown = Table(title=table.name, title_justify="left")
            shown.add_column("")
            for column in table.columns:
                shown.add_column(column, justify="right")
            for row in table.rows:
                shown.add_row(*row)
            console.print(shown)
        for note in (*self.worst(), *self.notes):
            console.print(note, highlight=False, soft_wrap=True)

    def markdown(self) -> str:
        """The same as Markdown, for a page of the documentation."""
        lines = ["```", *self.runs(), last_line(self.figures()), "```", ""]
        for table in self.tables():
            heads = "".join(f" {column} |" for column in table.columns)
            lines += [
                f"{table.name[0].upper()}{table.name[1:]}:",
                "",
                f"| |{heads}",
                "|---|" + "---:|" * len(table.columns),
            ]
            lines += ["| " + " | ".join(row) + " |" for row in table.rows]
            lines.append("")
            if table.name == "figures":
                lines += [*(f"- {line}" for line in (*self.worst(), *self.notes)), ""]
        return "\n".join(lines).strip()


@dataclass(slots=True)
class BesidePostfix(Book):
    """The cells of a run that alternates Postfix and ours; each has a column."""

    ours: ClassVar[str]

    def compared(self, table: str, what: str, **values: float) -> None:
        """Add one round's rates, ours and perhaps Postfix's, with their ratio."""
        ratio = values[self.ours] / values[POSTFIX] if POSTFIX in values else None
        self.add(table, what, **values, ratio=ratio)

    def ratio(self, table: str, what: str) -> Sequence[float]:
        """Our rate divided by Postfix's in every round; empty if either was not measured."""
        cell = self.cells.get((table, what))
        return cell.values.get("ratio", ()) if cell else ()

    def column(self, table: str, what: str, column: str) -> Sequence[float]:
        """One column of a cell in every round; empty if it was not measured."""
        cell = self.cells.get((table, what))
        return cell.values.get(column, ()) if cell else ()

    def worst(self) -> list[str]:
        """The cells in which Postfix was ahead in any round, and the lowest ratio of any round."""
        compared = [cell for cell in self.cells.values() if "ratio" in cell.values]
        if not compared:
            return []
        said = [
            f"{POSTFIX} is ahead at: {_place(cell)}{_rounds_behind(cell)}" for cell in compared if _lowest(cell) < 1
        ]
        return [*(said or [f"{POSTFIX} is ahead nowhere"]), f"lowest ratio: {_place(min(compared, key=_lowest))}"]


class Shown(NamedTuple):
    """A table as text: each row begins with its name."""

    name: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def _lowest(cell: Cell) -> float:
    return min(cell.values["ratio"])


def _rounds_behind(cell: Cell) -> str:
    ratios = cell.values["ratio"]
    return f", in {sum(ratio < 1 for ratio in ratios)} of {len(ratios)} rounds" if len(ratios) > 1 else ""


def _place(cell: Cell) -> str:
    return f"{cell.table}, {cell.what}: {_spread(cell.values['ratio'])}"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Round by round, ours divided by theirs."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def percentiles(ordered: Sequence[float]) -> dict[str, float]:
    """The 50th and 99th percentile of sorted seconds, in milliseconds."""
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


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    return min(values), median(values), max(values)


def _spread(values: Sequence[float]) -> str:
    """The median, with minimum and maximum if there are several values; "" if there are none."""
    if not values:
        return ""
    least, middle, most = map(_number, _three(values))
    return middle if len(values) == 1 else f"{middle} ({least} to {most})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"  # noqa: PLR2004 - digits beyond these are noise
