"""fingerprint — sums that compare a day in PostgreSQL with its copy

Owns: the same five sums computed by PostgreSQL over a day and by Arrow over a table.
Guarantees: rows that differ in id, instant, size or the length of any text give different sums unless the differences
    cancel out. The cleanup detects other differences by comparing rows.
See: scripts/analytics/cleanup/verify.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from datetime import datetime

    from scripts.analytics.source.columns import History

#: Not counted: all uuids have the same length, and PostgreSQL stores jsonb in another form than its text.
_NOT_COUNTED: Final = frozenset({"messages__id", "metadata", "argument"})


def counted(history: History) -> list[str]:
    """The columns whose octets are summed."""
    return [name for name, kind in history.kinds.items() if kind.spark == "string" and name not in _NOT_COUNTED]


def of_table(table: pa.Table, history: History, since: datetime) -> Fingerprint:
    """The sums over a table with rows of the day that begins at `since`."""
    if not table.num_rows:
        return Fingerprint()
    instants = table[history.instant].cast(pa.int64())
    begin = int(since.timestamp()) * 1_000_000
    sizes = sum(pc.sum(table[name].cast(pa.int64())).as_py() or 0 for name in history.sizes)
    octets = sum(pc.sum(pc.binary_length(table[name])).as_py() or 0 for name in counted(history))
    return Fingerprint(
        rows=table.num_rows,
        ids=pc.sum(table["id"]).as_py(),
        instants=pc.sum(pc.subtract(instants, begin)).as_py(),
        sizes=sizes + sum(table.num_rows - table[name].null_count for name in history.marks),
        octets=octets,
    )


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Sums over a day that PostgreSQL and Arrow both compute: rows, ids, instants, sizes, octets of text."""

    rows: int = 0
    ids: int = 0
    instants: int = 0
    sizes: int = 0
    octets: int = 0

    def __add__(self, other: Fingerprint) -> Fingerprint:
        mine, theirs = asdict(self), asdict(other)
        return Fingerprint(**{name: mine[name] + theirs[name] for name in mine})

    def __sub__(self, other: Fingerprint) -> Fingerprint:
        mine, theirs = asdict(self), asdict(other)
        return Fingerprint(**{name: mine[name] - theirs[name] for name in mine})
