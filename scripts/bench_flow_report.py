"""bench_flow_report — the cells of a run beside the peer's, their ratios, and the last line

Owns: what the rounds amount to. Pure.
Called by: scripts.bench_flow.
Guarantees: as in scripts.bench_core_report; the last line has one shape (FIGURES).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Final

from scripts.bench_core_report import UNMEASURED, Book
from scripts.bench_smtpd_report import POSTFIX, named

OURS: Final = "pillarbox"
DRAIN: Final = "deliveries/s from a full queue"
LATENCY: Final = "250 to first octet of MAIL at the next hop, idle, ms"
#: The keys of the last line, in order. Each ratio is of messages/s end to end, one recipient each.
FIGURES: Final = (
    "flow_vs_postfix_4k",
    "flow_vs_postfix_100k",
    "deliver_msgs_s",
    "first_byte_p50_ms",
    "first_byte_p99_ms",
)
_SIZES: Final = {"4k": 4096, "100k": 102_400}


def flow_table(recipients: int) -> str:
    """The table of messages/s, each for so many recipients."""
    return f"messages/s end to end, {recipients} recipient{'s' if recipients > 1 else ''} each"


def cpu_table(recipients: int) -> str:
    """The table of processor time, whoever spent it."""
    return f"processor time a message, {recipients} recipient{'s' if recipients > 1 else ''} each, ms"


@dataclass(slots=True)
class Results(Book):
    """Every cell of a run; both servers are columns of it."""

    def figures(self) -> dict[str, float | None]:
        """The figures of the last line; None for what was not measured."""
        ratios = {f"flow_vs_postfix_{name}": self.ratio(size) for name, size in _SIZES.items()}
        return {
            **ratios,
            "deliver_msgs_s": self._median(DRAIN, named(_SIZES["4k"]), OURS),
            "first_byte_p50_ms": self._median(LATENCY, named(_SIZES["4k"]), "p50"),
            "first_byte_p99_ms": self._median(LATENCY, named(_SIZES["4k"]), "p99"),
        }

    def ratio(self, size: int, recipients: int = 1) -> float | None:
        """The median over the rounds of ours to Postfix's, both of the same round."""
        cell = self.cells.get((flow_table(recipients), named(size)))
        if cell is None or not {OURS, POSTFIX} <= cell.values.keys():
            return None
        return median(a / b for a, b in zip(cell.values[OURS], cell.values[POSTFIX], strict=True))

    def compare(self) -> None:
        """Put each ratio beside its cell, once all rounds are done."""
        for cell in self.cells.values():
            if cell.values.keys() == {OURS, POSTFIX}:
                pairs = zip(cell.values[OURS], cell.values[POSTFIX], strict=True)
                cell.values["ratio"] = [a / b for a, b in pairs]

    def _median(self, table: str, what: str, column: str) -> float | None:
        cell = self.cells.get((table, what))
        return cell.median(column) if cell and column in cell.values else None


def last_line(figures: dict[str, float | None]) -> str:
    """The figures as one line."""
    return " ".join(f"{name}={_figure(name, figures[name])}" for name in FIGURES)


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return UNMEASURED
    return f"{value:.0f}" if name == "deliver_msgs_s" else f"{value:.2f}"
