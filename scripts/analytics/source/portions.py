"""portions — divides days into portions to read

Owns: cutting day partitions into ranges of pages, one short transaction each, and choosing the days in a range.
Guarantees: a pure function of the partitions' sizes. The portions of a day do not overlap and cover every present and
    future page (the last has no end). A portion is a range of pages, so its rows are in the order of their writing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Pages read in one transaction: 32 MB, about 130,000 attempts, half a second on an idle machine.
PAGES: Final = 4096
_END: Final = 2**32 - 2  # the highest page number PostgreSQL can have


@dataclass(frozen=True, slots=True)
class Leaf:
    """A day partition: its oid, its day, its size in pages."""

    leaf: int
    day: date
    pages: int


@dataclass(frozen=True, slots=True)
class Portion:
    """Pages `first` to before `last` of one day, and further conditions: column, operator, value."""

    leaf: int
    since: datetime
    until: datetime
    first: int
    last: int
    conditions: tuple[tuple[str, str, Any], ...] = ()

    @property
    def day(self) -> date:
        """The day of these pages."""
        return self.since.date()


def cut(leaf: Leaf, pages: int = PAGES) -> list[Portion]:
    """The portions of one day; one portion without an end if the day is empty."""
    since = datetime(leaf.day.year, leaf.day.month, leaf.day.day, tzinfo=UTC)
    starts = range(0, max(leaf.pages, 1), pages)
    until = since + timedelta(days=1)
    portions = [Portion(leaf.leaf, since, until, start, start + pages) for start in starts]
    portions[-1] = replace(portions[-1], last=_END)
    return portions


def within(leaves: Iterable[Leaf], since: datetime | None, until: datetime | None) -> list[Leaf]:
    """The days that overlap the time from `since` to `until`, both included."""
    return [
        leaf
        for leaf in leaves
        if (since is None or leaf.day >= since.astimezone(UTC).date())
        and (until is None or leaf.day <= until.astimezone(UTC).date())
    ]
