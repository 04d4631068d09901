"""bench_core_report — what a run of the queue core amounts to

Owns: the figures of the last line. Pure.
Called by: scripts.bench_core.
Guarantees: as in scripts.bench_book.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from scripts.bench_book import Book, ratios

if TYPE_CHECKING:
    from scripts.bench_book import Cell


@dataclass(slots=True)
class Results(Book):
    """Every cell of a run; the peers have tables of their own."""

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


def _ratio(ours: Cell | None, theirs: Cell | None, column: str) -> float | None:
    """The median of the ratios of each round."""
    return median(ratios(ours.values[column], theirs.values[column])) if ours and theirs else None
