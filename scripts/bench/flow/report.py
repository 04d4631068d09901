"""report — the results of a run from acceptance to delivery

Owns: the names of its tables and columns, and the figures of the last line. Pure.
Guarantees: as in scripts.bench.book.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from scripts.bench.book import BesidePostfix, named

if TYPE_CHECKING:
    from collections.abc import Sequence

OURS: Final = "pillarbox"
DRAIN: Final = "deliveries/s from a full queue, bodies deleted too"
SWEEP: Final = "of our time, deletion of bodies, ms a message"
LATENCY: Final = "250 to first octet of MAIL at the next hop, idle, ms"
_SIZES: Final = {"4k": 4096, "100k": 102_400}


def flow_table(recipients: int) -> str:
    """The name of the table of messages/s with this many recipients each."""
    return f"messages/s end to end, {recipients} recipient{'s' if recipients > 1 else ''} each"


def sweep_row(size: int, recipients: int) -> str:
    """The name of a cell's row in the table of deletions."""
    return f"{named(size)}, {recipients} recipient{'s' if recipients > 1 else ''} each"


def cpu_table(recipients: int) -> str:
    """The name of the table of processor time."""
    return f"processor time a message, {recipients} recipient{'s' if recipients > 1 else ''} each, ms"


@dataclass(slots=True)
class Results(BesidePostfix):
    """Every cell of a run."""

    ours: ClassVar[str] = OURS

    def by_round(self) -> dict[str, Sequence[float]]:
        """The figures; ratios compare messages/s end to end with one recipient each."""
        return {
            **{f"flow_vs_postfix_{name}": self.ratio(flow_table(1), named(size)) for name, size in _SIZES.items()},
            "deliver_msgs_s": self.column(DRAIN, named(_SIZES["4k"]), OURS),
            "first_byte_p50_ms": self.column(LATENCY, named(_SIZES["4k"]), "p50"),
            "first_byte_p99_ms": self.column(LATENCY, named(_SIZES["4k"]), "p99"),
        }
