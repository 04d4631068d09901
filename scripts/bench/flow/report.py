"""report — what a run of the whole way amounts to

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
    """The table of messages/s, each for so many recipients."""
    return f"messages/s end to end, {recipients} recipient{'s' if recipients > 1 else ''} each"


def sweep_row(size: int, recipients: int) -> str:
    """The row of a cell in the table of deletions."""
    return f"{named(size)}, {recipients} recipient{'s' if recipients > 1 else ''} each"


def cpu_table(recipients: int) -> str:
    """The table of processor time, whoever spent it."""
    return f"processor time a message, {recipients} recipient{'s' if recipients > 1 else ''} each, ms"


@dataclass(slots=True)
class Results(BesidePostfix):
    """Every cell of a run."""

    ours: ClassVar[str] = OURS

    def by_round(self) -> dict[str, Sequence[float]]:
        """Each ratio is of messages/s end to end, one recipient each."""
        return {
            **{f"flow_vs_postfix_{name}": self.ratio(flow_table(1), named(size)) for name, size in _SIZES.items()},
            "deliver_msgs_s": self.column(DRAIN, named(_SIZES["4k"]), OURS),
            "first_byte_p50_ms": self.column(LATENCY, named(_SIZES["4k"]), "p50"),
            "first_byte_p99_ms": self.column(LATENCY, named(_SIZES["4k"]), "p99"),
        }
