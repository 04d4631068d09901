"""report — the results of a run of the queue core

Owns: the figures of the last line, and which of our cells is compared with which of a peer's. Pure.
Guarantees: as in scripts.bench.book. Compared with pgmq, ours reads the bodies, as pgmq's `read` does. Like for like
    means the same batch and the same number of processes; our best is compared only with the peer's best.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from scripts.bench.book import Book, ratios

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scripts.bench.book import Cell

#: Ours: claim, read the body, settle. pgmq: read and archive.
PGMQ: Final = "beside pgmq, rows/s"
PGQUEUER: Final = "PgQueuer"
SETTLE: Final = "claim + settle"
WITH_BODIES: Final = "claim + read body + settle"
_ALIKE: Final = (100, 4)  # batch and processes of the goal


def row(batch: int, workers: int) -> str:
    """The row of a cell."""
    return f"batch {batch}, {_processes(workers)}"


def peer_row(processes: int, batch: int, consumers: int) -> str:
    """The row of a cell of PgQueuer."""
    return f"{_processes(processes)}, batch {batch}, {consumers} consumers each"


def _processes(number: int) -> str:
    return f"{number} process{'es' if number > 1 else ''}"


@dataclass(slots=True)
class Results(Book):
    """Every cell of a run."""

    def best(self, table: str, column: str = "rows/s", what: str = "") -> Sequence[float]:
        """The rounds of a table's fastest cell among those whose name contains `what`; empty if there is none."""
        measured = [
            cell
            for (name, cell_name), cell in self.cells.items()
            if name == table and what in cell_name and column in cell.values
        ]
        fastest = max(measured, key=lambda cell: cell.median(column), default=None)
        return fastest.values[column] if fastest else ()

    def beside_pgmq(self, batch: int, workers: int, ours: float, theirs: float) -> None:
        """Add one round with the same batch and number of processes on both sides."""
        self.add(PGMQ, row(batch, workers), ours=ours, pgmq=theirs, ratio=ours / theirs)

    def by_round(self) -> dict[str, Sequence[float]]:
        """The figures of the last line; empty if unmeasured."""
        alike = self.cells.get((PGMQ, row(*_ALIKE)))
        worst = self._worst()
        wake, backlog = self.cells["wake-up", "quiet"], self.cells["wake-up", "deferred backlog"]
        return {
            "schedule_rows_s": self.best("schedule, 1 KB"),
            "settle_rows_s": self.best(SETTLE),
            "settle_vs_pgmq": _ratios(self.best(PGMQ, "ours"), self.best(PGMQ, "pgmq")),
            "settle_vs_pgmq_alike": alike.values["ratio"] if alike else (),
            "settle_vs_pgmq_worst": worst.values["ratio"] if worst else (),
            **{
                f"drain_vs_pgqueuer{suffix}": _ratios(
                    self.best(SETTLE, what=f", {_processes(processes)}"),
                    self.best(PGQUEUER, what=f"{_processes(processes)}, "),
                )
                for suffix, processes in (("", 1), ("_2", 2))
            },
            "wake_p50_ms": wake.values["p50 ms"],
            "wake_p99_ms": wake.values["p99 ms"],
            "backlog_ratio": ratios(backlog.values["claim ms"], wake.values["claim ms"]),
            **{
                f"leaves_{name}_{number}": self.rounds("leaves", f"{number} leaves", column)
                for name, column in (("results50_ms", "50 results ms"), ("rows_s", "rows/s"), ("locks", "locks"))
                for number in (3, 100, 500)
            },
        }

    def worst(self) -> list[str]:
        """The cells in which pgmq is ahead."""
        behind = [cell for cell in self._compared() if min(cell.values["ratio"]) < 1]
        worst = self._worst()
        if worst is None:
            return []
        said = [f"pgmq is ahead at {cell.what}: {cell.median('ratio'):.2f}" for cell in behind]
        return [*(said or ["pgmq is ahead nowhere"]), f"lowest ratio: {worst.what}: {worst.median('ratio'):.2f}"]

    def _compared(self) -> list[Cell]:
        return [cell for (table, _), cell in self.cells.items() if table == PGMQ]

    def _worst(self) -> Cell | None:
        return min(self._compared(), key=lambda cell: median(cell.values["ratio"]), default=None)


def _ratios(ours: Sequence[float], theirs: Sequence[float]) -> Sequence[float]:
    """Round by round; empty if either was not measured."""
    return ratios(ours, theirs) if ours and theirs else ()
