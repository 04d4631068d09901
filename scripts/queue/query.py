"""query — takes a condition and a connection to the database, for every verb of `pillarbox queue`

Owns: the arguments of the condition, and PostgreSQL's refusals as one line.
See: operate/queue/query.py for what a condition selects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts import one_connection
from shared.postgres import database

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable


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
