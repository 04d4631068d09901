"""bench_flow_report — what a run of the whole way amounts to

Owns: the names of its tables and columns, and the figures of the last line. Pure.
Called by: scripts.bench_flow.
Guarantees: as in scripts.bench_book.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from scripts.bench_book import BesidePostfix, named

OURS: Final = "pillarbox"
DRAIN: Final = "deliveries/s from a full queue"
LATENCY: Final = "250 to first octet of MAIL at the next hop, idle, ms"
_SIZES: Final = {"4k": 4096, "100k": 102_400}


def flow_table(recipients: int) -> str:
    """The table of messages/s, each for so many recipients."""
    return f"messages/s end to end, {recipients} recipient{'s' if recipients > 1 else ''} each"


def cpu_table(recipients: int) -> str:
    """The table of processor time, whoever spent it."""
    return f"processor time a message, {recipients} recipient{'s' if recipients > 1 else ''} each, ms"


@dataclass(slots=True)
class Results(BesidePostfix):
    """Every cell of a run."""

    ours: ClassVar[str] = OURS

    def figures(self) -> dict[str, float | None]:
        """Each ratio is of messages/s end to end, one recipient each."""
        return {
            **{f"flow_vs_postfix_{name}": self.ratio(flow_table(1), named(size)) for name, size in _SIZES.items()},
            "deliver_msgs_s": self.median(DRAIN, named(_SIZES["4k"]), OURS),
            "first_byte_p50_ms": self.median(LATENCY, named(_SIZES["4k"]), "p50"),
            "first_byte_p99_ms": self.median(LATENCY, named(_SIZES["4k"]), "p99"),
        }
