"""query — a condition as it is used in queries

Owns: the instant of "now", and filling a condition into a query.
Guarantees: a condition is compiled once for what is asked, against one instant by PostgreSQL's clock, so that the
    preview and the change select the same.
Raises: PillarboxError for errors that can be corrected.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from operate.condition.compile import compiled
from operate.condition.ids import named
from shared.config.condition.read import read
from shared.config.condition.tree import All
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from operate.condition.compile import Compiled
    from shared.config.condition.tree import Node

#: Every status; verbs that act take fewer.
STATUSES: Final = ("HOLD", "DELIVER", "DELETE", "BOUNCE")


@dataclass(frozen=True, slots=True)
class Query:
    """A condition as it will be used. now: by PostgreSQL's clock, the instant every part of what is asked goes by."""

    condition: Node
    sql: Compiled
    now: datetime

    @property
    def everything(self) -> bool:
        """Whether there is no condition at all."""
        return self.condition == All()

    async def fetch(self, connection: database.Connection, name: str, /, **values: Any) -> list[database.Row]:
        """Run a query that has a {condition}; `columns` fills {columns}."""
        parts = {"condition": self.sql.text}
        if "columns" in values:
            parts["columns"] = values.pop("columns")
        # Only the parameters the query has: the driver refuses others by name only where they are positional.
        return await database.fetch_filled(connection, name, parts, now=self.now, **values, **self.sql.values)

    async def fetch_of_all(self, connection: database.Connection, name: str, /, **values: Any) -> list[database.Row]:
        """The same, and PostgreSQL may read all of the queue from end to end, which a daemon's connection forbids."""
        async with connection.transaction():
            await database.fetch(connection, "connection_read_whole_tables")
            return await self.fetch(connection, name, **values)


async def asked(connection: database.Connection, words: Sequence[str]) -> Query:
    """The condition of these words, as of now."""
    condition = read(named(words))
    return asked_of(condition, await clock(connection))


def asked_of(condition: Node, now: datetime) -> Query:
    """A condition as of an instant by PostgreSQL's clock."""
    return Query(condition, compiled(condition, now), now)


async def clock(connection: database.Connection) -> datetime:
    """Now, by the clock of PostgreSQL, which decides when mail is due."""
    [row] = await database.fetch(connection, "schedule_clock")
    now: datetime = row.now
    return now


def to_the_second(at: datetime) -> str:
    """A time as sentences have it: in UTC."""
    return at.astimezone(UTC).isoformat(" ", "seconds").replace("+00:00", "Z")
