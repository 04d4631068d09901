"""query — takes a condition and a connection to the database, for every verb of `pillarbox queue`

Owns: the arguments of the condition, the instant of "now", and PostgreSQL's refusals as one line.
Guarantees: a condition is compiled once for a command, against one instant by PostgreSQL's clock, so that the preview
    and the change select the same.
Raises: PillarboxError for errors that an operator can correct.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from operate.condition.compile import compiled
from operate.condition.ids import named
from operate.condition.read import read
from operate.condition.tree import All
from scripts import one_connection
from scripts.output.records import plain
from shared.postgres import database

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from operate.condition.compile import Compiled
    from operate.condition.tree import Node

#: Every status; verbs that act take fewer.
STATUSES: Final = ("HOLD", "DELIVER", "DELETE", "BOUNCE")


@dataclass(frozen=True, slots=True)
class Query:
    """A condition as it will be used. now: by PostgreSQL's clock, the instant every part of the command goes by."""

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


async def asked(connection: database.Connection, words: list[str]) -> Query:
    """The condition of a command line, as of now."""
    condition = read(named(words))
    [row] = await database.fetch(connection, "schedule_clock")
    return asked_of(condition, row.now)


def asked_of(condition: Node, now: datetime) -> Query:
    """A condition as of an instant by PostgreSQL's clock."""
    return Query(condition, compiled(condition, now), now)


def add_condition(parser: argparse.ArgumentParser, *, all_: bool = False) -> None:
    """The condition itself; `all_` for verbs that act, which never take an empty one for everything."""
    parser.add_argument(
        "condition",
        nargs="*",
        default=[],
        metavar="CONDITION",
        help="ids, or such as: state=HOLD recipientdomain=example.com 'age>1h' (docs/reference/condition.md)",
    )
    if all_:
        parser.add_argument("--all", action="store_true", help="every recipient, without a condition")


def run[T](options: argparse.Namespace, question: Callable[[database.Connection], Awaitable[T]]) -> T:
    """Ask the database on one connection; what it refuses is one line."""
    return one_connection.ask(one_connection.configured(options), "pillarbox queue", question, _refused)


def _refused(error: BaseException) -> str:
    return database.reason(error)


def cell(value: object) -> object:
    """Times to the second, in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(" ", "seconds").replace("+00:00", "Z")
    return plain(value)
