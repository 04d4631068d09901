"""leaves — the partitions that a statement about claimed recipients names

Guarantees: each statement names the partition ids of its recipients, of MOST leaves at most, because PostgreSQL locks
    every leaf that a statement does not leave out, and where it plans, all its indexes. With 500 leaves that is
    thousands of locks for one result, and `out of shared memory` for 32 workers. The ids are in the statement's text:
    the kept plans that the daemons use (sql/queries/upkeep/connection.sql, connection_walk) are made without knowing
    parameters. Leaves that are met first stay together in one block, so that texts, and with them plans, come again.
    A row that is not found where it was claimed (it was put on hold meanwhile, or given another id) is looked for once
    in the whole queue.
See: PostgreSQL manual, "Partition Pruning"; sql/README.md, "Claims".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from queued.values import Claimed

#: Leaves in one statement, of which each costs some five locks, and two dozen while it is planned.
MOST: Final = 16
_REMEMBERED: Final = 1000  # partition ids; a text that names more is longer than what it saves

#: A partition id; None is mail without one.
type Partid = str | None


class Leaves:
    """The leaves of a worker's recipients, as far as it has met them."""

    def __init__(self) -> None:
        self._leaf: dict[Partid, int] = {}
        self._block: dict[int, int] = {}  # by leaf

    def named(self, claimed: Iterable[Claimed]) -> list[Partid]:
        """The partition ids to name in a statement about these: all that are known of their blocks."""
        theirs = {c.partid: c.leaf for c in claimed}
        # After a repartition, ids that shared a leaf may have one each: their old block could name them all.
        moved = any(self._leaf.get(partid, leaf) != leaf for partid, leaf in theirs.items())
        self._leaf |= theirs
        if moved or len(self._leaf) > _REMEMBERED:
            self._leaf, self._block = theirs, {}
        blocks = {self._of(leaf) for leaf in theirs.values()}
        return sorted(
            (partid for partid, leaf in self._leaf.items() if self._of(leaf) in blocks),
            key=lambda partid: (partid is None, partid or ""),
        )

    def first[T](self, items: Sequence[T], claimed: Callable[[T], Claimed]) -> list[T]:
        """Those of the items that are in the block of the first."""
        block = self._of(claimed(items[0]).leaf)
        return [item for item in items if self._of(claimed(item).leaf) == block]

    def portions(self, claimed: Iterable[Claimed]) -> list[list[Claimed]]:
        """All of them, block by block."""
        by_block: dict[int, list[Claimed]] = {}
        for c in claimed:
            by_block.setdefault(self._of(c.leaf), []).append(c)
        return list(by_block.values())

    def _of(self, leaf: int) -> int:
        return self._block.setdefault(leaf, len(self._block) // MOST)


def among(partids: Iterable[Partid] | None) -> str:
    """The condition for {among} in a query, about the row `q`; None is the whole queue."""
    if partids is None:
        return "true"
    ids = list(partids)
    named = ", ".join(_literal(partid) for partid in ids if partid is not None)
    parts = [f"q.metadata->>'_partid' IN ({named})"] if named else []
    if None in ids:
        parts.append("q.metadata->>'_partid' IS NULL")
    return f"q.status <> 'HOLD' AND ({' OR '.join(parts) or 'false'})"


def _literal(text: str) -> str:
    """A text as PostgreSQL and the driver read it, for any content and any standard_conforming_strings."""
    quoted = text.replace("\\", "\\\\").replace("'", "''").replace("%", "%%")
    return f"{'E' if '\\' in text else ''}'{quoted}'"
