"""coverage — which partitions a worker's condition claims

Owns: the partition ids that mail can get, what a condition claims of each, and which ids no condition claims.
Guarantees: pure. ALL and NONE hold for every row of the partition, with any other columns and keys.
See: operate/doctor/conditions.py, which asks PostgreSQL.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: A partition id; None is mail that has none.
type Partid = str | None


class Serves(Enum):
    """What a condition claims of a partition's mail."""

    ALL = "all"
    PART = "part"  # some of it, or it cannot be proven
    NONE = "none"


def configured(count: int, *others: str) -> list[Partid]:
    """The partition ids mail can get: those domains hash to, those named elsewhere, and none."""
    hashed = [str(number) for number in range(1, count + 1)]
    return [*hashed, *sorted(set(others) - set(hashed)), None]


def judge(left: str) -> Serves:
    """What it means for a partition that the planner has left this of the condition, as EXPLAIN writes it."""
    # A WHERE that is NULL selects nothing.
    return {"true": Serves.ALL, "false": Serves.NONE, "NULL::boolean": Serves.NONE}.get(left, Serves.PART)


def unserved(partids: Iterable[Partid], answers: Iterable[Mapping[Partid, Serves]]) -> list[Partid]:
    """The ids of which every answer says none."""
    known = list(answers)
    return [partid for partid in partids if all(answer[partid] is Serves.NONE for answer in known)]
