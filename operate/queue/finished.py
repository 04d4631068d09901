"""finished — searches the archive: recipients that are finished and fit a condition, the latest first

Owns: the stretches of time in which it is searched.
Guarantees: reads only. However many rows there are, a search ends soon after `seconds`, and says how far back it has
    looked, so that another goes on from there. A stretch doubles as long as it is read quickly; a condition that names
    a message looks everywhere at once, by indexes.
Raises: ConditionError; a statement that takes longer than the connection allows is cancelled.
See: sql/schema/05_history.sql; docs/how-to/observe/trace-a-message.md.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from operate.condition.compile import compiled
from operate.condition.ids import named
from operate.queue.query import Query, clock
from shared.config.condition.fields import FINISHED
from shared.config.condition.read import read
from shared.config.condition.tree import All, Term
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.config.condition.tree import Node

_FIRST: Final = timedelta(hours=1)
_QUICK: Final = 0.05  # seconds for a stretch, after which the next is twice as long
_NAMES: Final = frozenset({"id", "message", "msgid"})
_LAST_ID: Final = 2**63 - 1


class Place(NamedTuple):
    """Where a search goes on: at what was finished before this."""

    finished: datetime
    id: int = 0


class Found(NamedTuple):
    """What was found, and from where on nothing was looked at yet; None: everything was."""

    rows: list[database.Row]
    more: Place | None


async def search(
    connection: database.Connection, words: Sequence[str], place: Place | None, *, limit: int, seconds: float
) -> Found:
    """At most `limit` recipients that fit, from this place of an earlier search on, else from now."""
    condition, now = read(named(words), FINISHED), await clock(connection)
    asking = Query(condition, compiled(condition, now), now)
    [oldest] = await database.fetch(connection, "archive_oldest")
    place = place or Place(now + timedelta(days=1), _LAST_ID)
    rows: list[database.Row] = []
    end, began = place.finished + timedelta(microseconds=1), monotonic()
    span = end - oldest.at if oldest.at and _is_named(condition) else _FIRST
    while oldest.at and end > oldest.at:
        since, looked = max(end - span, oldest.at), monotonic()
        rows += await asking.fetch(
            connection, "archive_find", since=since, until=end, before=place.finished, id=place.id,
            limit=limit + 1 - len(rows),
        )  # fmt: skip
        end = since
        if len(rows) > limit:
            last = rows[limit - 1]
            return Found(rows[:limit], Place(last.finished, last.id))
        if monotonic() - began > seconds:
            break
        if monotonic() - looked < _QUICK:
            span *= 2
    return Found(rows, Place(end) if oldest.at and end > oldest.at else None)


def place_of(text: str) -> Place | None:
    """A place as an address has it; None for the beginning; ValueError for anything else."""
    if not text:
        return None
    finished, _, id_ = text.partition("/")
    at = datetime.fromisoformat(finished)
    return Place(at if at.tzinfo else at.replace(tzinfo=UTC), min(int(id_ or "0"), _LAST_ID))


def _is_named(condition: Node) -> bool:
    """Whether every part that fits names a message or a recipient, which indexes find."""
    match condition:
        case Term():
            exact = all(each.how == "exact" for each in condition.values)
            return condition.name in _NAMES and condition.operator == "=" and exact and not condition.negated
        case All():
            return any(map(_is_named, condition.parts))
        case _:
            return False
