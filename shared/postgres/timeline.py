"""timeline — detects that another timeline of the database answers

Guarantees: a standby that is promoted, and a backup that is restored, begin a new timeline. Where it lagged, its
    sequences are behind, and it gives ids again that were used before. Code that keeps an id for longer than a
    transaction keeps the timeline beside it, or the message's UUID where there is one.
See: PostgreSQL manual, "Timelines"; sql/README.md, "Ids and timelines".
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from shared.postgres import database

if TYPE_CHECKING:
    from shared.postgres.database import Connection


async def current(connection: Connection) -> str | None:
    """The system identifier and the timeline of the server that answers; None while it is in recovery."""
    [row] = await database.fetch(connection, "server_timeline")
    timeline: str | None = row.timeline
    return timeline


class Timeline:
    """The one that answered last."""

    def __init__(self) -> None:
        self.known: str | None = None
        self._looked: WeakSet[Connection] = WeakSet()

    async def change(self, connection: Connection, *, doubtful: bool = False) -> tuple[str, str] | None:
        """The timeline before and the one now, where they differ; one question for each connection.

        A connection leads to one server as long as it lasts, except behind a pooler: then it is asked again where
        there is doubt.
        """
        if connection in self._looked and not (doubtful and database.is_pooled(connection)):
            return None
        found = await current(connection)
        self._looked.add(connection)
        before, self.known = self.known, found or self.known
        return (before, found) if before and found and before != found else None
