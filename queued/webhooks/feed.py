"""feed — an endpoint's events, from where it has come to

Owns: the position of an endpoint, and the portions in which it reads history (queued/webhooks/history.py).
Guarantees: no transaction is skipped, however late it commits: a position is a snapshot, and what it does not see comes
    later. An event has the same id whenever it is read. A portion is bounded, and no transaction stays open behind it.
Raises: ServerChangedError; psycopg's exceptions.
See: sql/README.md, "Webhooks"; sql/schema/22_webhook.sql, webhook_next and webhook_events.
Bugs: a transaction that was open for more than _OPEN when it committed is not looked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from queued.webhooks.history import PLACE, Asked, Event, History
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPEN: Final = timedelta(days=3)
_FIRST, _WIDEST = 16, 1 << 40  # transactions between two snapshots
_SOON, _LATEST = timedelta(seconds=1), timedelta(days=1)  # of what is sent again
_BEGIN: Final[dict[str, Any]] = dict.fromkeys(PLACE)


class Goal(NamedTuple):
    """The next snapshot, or the next time of what is sent again; what is before it comes first."""

    snapshot: str
    at: datetime
    again: datetime | None
    until: datetime | None
    past: dict[str, Any]  # the place that was reached on the way


@dataclass(frozen=True, slots=True)
class Position:
    """How far an endpoint has come.

    server: when the one was started whose snapshot this is. again, until: what is sent once more; goal: where it is on
    the way to.
    """

    server: datetime
    snapshot: str
    at: datetime
    again: datetime | None = None
    until: datetime | None = None
    goal: Goal | None = None

    @property
    def values(self) -> dict[str, Any]:
        """The values of its columns."""
        goal = self.goal and {
            key: value.isoformat() if isinstance(value, datetime) else value
            for key, value in self.goal._asdict().items()
        }
        return {
            "server": self.server,
            "snapshot": self.snapshot,
            "at": self.at,
            "again": self.again,
            "until": self.until,
            "goal": json.dumps(goal) if goal else None,
        }


class Portion(NamedTuple):
    """Some events, and the position behind them; `last` when there are no more now."""

    events: list[Event]
    behind: Position
    last: bool


class Feed:
    """Reads portion after portion of one endpoint."""

    def __init__(self, history: History, kinds: Sequence[str], position: Position, most: int) -> None:
        """`most`: events in a portion."""
        self._history, self._kinds, self._most = history, tuple(sorted(kinds)), most
        self._position = position
        self._known = monotonic()  # when the position's snapshot was, at the latest
        self._span = _FIRST
        self._time = _SOON

    async def next(self, connection: database.Connection) -> Portion:
        """The next portion behind the last one that `next` returned."""
        position, last = self._position, False
        again = position.again is not None
        goal = position.goal
        if goal is None:
            goal, last = await self._goal(connection, position)
        if not again and goal.snapshot == position.snapshot:  # nothing has happened since
            return Portion([], position, last)
        page = await self._history.page(
            connection,
            Asked(
                kinds=self._kinds,
                after=None if again else position.snapshot,
                upto=None if again else goal.snapshot,
                since=position.again if position.again is not None else position.at - _OPEN,
                before=(goal.again or position.until) if again else None,
                most=self._most,
                past=tuple(goal.past[key] for key in PLACE),
            ),
        )
        full = len(page.events) >= self._most
        if full and page.place is not None:
            self._position = replace(position, goal=goal._replace(past=page.place))
        else:
            self._position = Position(position.server, goal.snapshot, goal.at, goal.again, goal.until)
            self._known = monotonic()
        self._adapt(len(page.events), again=again)
        return Portion(page.events, self._position, last and not full)

    async def _goal(self, connection: database.Connection, position: Position) -> tuple[Goal, bool]:
        """Where to go from here, and whether that is as far as one can see now."""
        if position.again is not None and position.until is not None:
            reached = position.again + self._time
            if reached >= position.until:
                return Goal(position.snapshot, position.at, None, None, _BEGIN), False
            return Goal(position.snapshot, position.at, reached, position.until, _BEGIN), False
        ahead, last = await self._history.ahead(
            connection, position.server, position.snapshot, span=self._span, known=self._known
        )
        return Goal(ahead.text, ahead.at or position.at, None, None, _BEGIN), last

    def _adapt(self, found: int, *, again: bool) -> None:
        """Portions grow while they have little in them."""
        wide, dense = found < self._most // 4, found >= self._most
        if again:
            self._time = min(2 * self._time, _LATEST) if wide else max(self._time / 2, _SOON) if dense else self._time
        else:
            self._span = min(2 * self._span, _WIDEST) if wide else max(self._span // 2, 1) if dense else self._span


async def find(connection: database.Connection, name: str) -> tuple[Position, database.Row] | None:
    """Where an endpoint has come to, and its failures; None where there is no such endpoint."""
    while True:
        rows = await database.fetch(connection, "webhook_position", name=name)
        if not rows:
            return None
        [row] = rows
        if not row.restored:
            return Position(row.server, row.snapshot, row.at, row.again, row.until, _read(row.goal)), row
        await database.fetch(connection, "webhook_restart", name=name, xact=row.xact)


def _read(goal: dict[str, Any] | None) -> Goal | None:
    if goal is None:
        return None
    times = {key: datetime.fromisoformat(goal[key]) if goal[key] else None for key in ("at", "again", "until")}
    return Goal(**{**goal, **times})
