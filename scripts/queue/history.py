"""history — `pillarbox queue trace|audit`: the history of a message, and the commands that changed the queue

Owns: these verbs, their tables and their JSON.
Guarantees: reads only; finished mail is shown as long as the archive is kept, its tries as long as history is.
See: operate/queue/history.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.queue import history
from scripts.options import count, finish, row_number
from scripts.output import records
from scripts.output.records import fields
from scripts.output.table import Column, Table
from scripts.queue.query import run

if TYPE_CHECKING:
    import argparse

    from shared.postgres import database

_EVENTS: Final = (
    Column("id", right=True),
    Column("when"),
    Column("event"),
    Column("", wraps=True),
)
_SAID: Final = "said"  # a line of the conversation of a failed try
_COMMANDS: Final = (
    Column("id", right=True),
    Column("when", gives=6),
    Column("who", gives=5, least=8),
    Column("verb", least=10),
    Column("condition", least=18),
    Column("wanted", gives=1, right=True),
    Column("done", right=True),
    Column("skipped", gives=2, right=True),
    Column("end", gives=4, least=8),
    Column("reason", gives=3, least=12),
)


def add_verbs(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs that tell history."""
    verb = under.add_parser("trace", help="everything that ever happened to a message")
    verb.add_argument("id", metavar="ID", help="a message id, the number of a recipient, or a <Message-ID>")
    verb.add_argument("--limit", type=count, default=1000, metavar="N", help="at most N lines (1000)")
    finish(verb, trace, acting=True)

    verb = under.add_parser("audit", help="commands that changed the queue, newest first")
    verb.add_argument("id", type=row_number, nargs="?", metavar="AUDIT", help="only this one")
    verb.add_argument("--limit", type=count, default=20, metavar="N", help="at most N (20)")
    finish(verb, audit, acting=True)


def trace(options: argparse.Namespace) -> int:
    """Print the history of a message."""
    rows = run(options, lambda connection: history.trace(connection, options.id, options.limit))
    if options.json:
        records.lines(map(fields, rows))
        return 0
    first = {row.id: row for row in reversed(rows)}
    Table(_EVENTS).print(
        line
        for row in rows
        for line in (
            (row.id, row.ts, row.event, f"{row.recipient} {row.details}" if row is first[row.id] else row.details),
            *((row.id, row.ts, _SAID, said) for said in (row.conversation or "").splitlines()),
        )
    )
    return 0


def audit(options: argparse.Namespace) -> int:
    """Print what was done."""
    rows = run(options, lambda connection: history.audit(connection, options.id, options.limit))
    if options.json:
        records.lines(map(fields, rows))
        return 0
    if not rows:
        print("no commands")
    Table(_COMMANDS).print(map(_command, rows))
    return 0


def _command(row: database.Row) -> tuple[object, ...]:
    """One command as a row of the table."""
    end = "undone" if row.undone else "finished" if row.finished else "interrupted or under way"
    verb = " ".join([row.verb, *(f"{name}={value}" for name, value in row.argument.items())])
    who = f"{row.operator}, {row.who}" if row.operator not in {None, row.who} else row.who
    return row.id, row.ts, who, verb, row.condition or "(all)", row.wanted, row.done, row.skipped, end, row.reason
