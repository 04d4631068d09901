"""report — the results of a run of acceptance

Owns: the names of its tables, rows and columns, and the figures of the last line. Pure.
Guarantees: as in scripts.bench.book.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from scripts.bench.book import BesidePostfix, named

if TYPE_CHECKING:
    from collections.abc import Sequence

OURS: Final = "smtpd"
_SESSIONS: Final = 20
_SIZES: Final = {"4k": 4096, "100k": 102_400, "1m": 1_048_576}


def accept_table(size: int) -> str:
    """The name of the table of messages/s at this size."""
    return f"accepted messages/s, {named(size)}"


def cpu_table(size: int) -> str:
    """The name of the table of processor time at this size."""
    return f"processor time a message, {named(size)}, ms"


def reply_table(size: int) -> str:
    """The name of the table of the final reply's time at this size."""
    return f"final reply, {named(size)}, ms"


def row(sessions: int, *, reuse: bool) -> str:
    """The name of a cell's row."""
    return f"{sessions} sessions, {'reused' if reuse else 'one message each'}"


@dataclass(slots=True)
class Results(BesidePostfix):
    """Every cell of a run."""

    ours: ClassVar[str] = OURS

    def by_round(self) -> dict[str, Sequence[float]]:
        """The figures; ratios compare messages/s at 20 sessions with connections reused."""
        what = row(_SESSIONS, reuse=True)
        return {
            **{f"accept_vs_postfix_{name}": self.ratio(accept_table(size), what) for name, size in _SIZES.items()},
            "reply_p99_ms": self.column(reply_table(_SIZES["4k"]), what, f"{OURS} p99"),
        }
