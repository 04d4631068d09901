"""bench_smtpd_report — the cells of a run beside the peer's, their ratios, and the last line

Owns: what the rounds amount to. Pure.
Called by: scripts.bench_smtpd.
Guarantees: as in scripts.bench_core_report; the last line has one shape (FIGURES).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Final

from scripts.bench_core_report import UNMEASURED, Book

OURS: Final = "smtpd"
POSTFIX: Final = "Postfix"
#: The keys of the last line, in order. Each ratio is of messages/s at 20 sessions, connections reused.
FIGURES: Final = ("accept_vs_postfix_4k", "accept_vs_postfix_100k", "accept_vs_postfix_1m", "reply_p99_ms")
SESSIONS: Final = 20
_SIZES: Final = {"4k": 4096, "100k": 102_400, "1m": 1_048_576}


def accept_table(size: int) -> str:
    """The table of messages/s at this size."""
    return f"accepted messages/s, {named(size)}"


def cpu_table(size: int) -> str:
    """The table of processor time at this size, whoever spent it."""
    return f"processor time a message, {named(size)}, ms"


def reply_table(size: int) -> str:
    """The table of the final reply's time at this size."""
    return f"final reply, {named(size)}, ms"


def row(sessions: int, *, reuse: bool) -> str:
    """The row of a cell."""
    return f"{sessions} sessions, {'reused' if reuse else 'one message each'}"


def named(size: int) -> str:
    """1 KB, 100 KB, 1 MB."""
    return f"{size // 2**20} MB" if size >= 2**20 else f"{size // 2**10} KB"


@dataclass(slots=True)
class Results(Book):
    """Every cell of a run; both servers are columns of it."""

    def figures(self) -> dict[str, float | None]:
        """The figures of the last line; None for what was not measured."""
        ratios = {f"accept_vs_postfix_{name}": self.ratio(size, SESSIONS) for name, size in _SIZES.items()}
        replies = self.cells.get((reply_table(_SIZES["4k"]), row(SESSIONS, reuse=True)))
        column = f"{OURS} p99"
        return {**ratios, "reply_p99_ms": replies.median(column) if replies and column in replies.values else None}

    def ratio(self, size: int, sessions: int, *, reuse: bool = True) -> float | None:
        """The median over the rounds of ours to Postfix's, both of the same round."""
        cell = self.cells.get((accept_table(size), row(sessions, reuse=reuse)))
        if cell is None or not {OURS, POSTFIX} <= cell.values.keys():
            return None
        return median(a / b for a, b in zip(cell.values[OURS], cell.values[POSTFIX], strict=True))

    def compare(self) -> None:
        """Put each ratio beside its cell, once all rounds are done."""
        for cell in self.cells.values():
            if cell.values.keys() == {OURS, POSTFIX}:
                pairs = zip(cell.values[OURS], cell.values[POSTFIX], strict=True)
                cell.values["ratio"] = [a / b for a, b in pairs]


def last_line(figures: dict[str, float | None]) -> str:
    """The figures as one line."""
    return " ".join(f"{name}={UNMEASURED if (v := figures[name]) is None else f'{v:.2f}'}" for name in FIGURES)
