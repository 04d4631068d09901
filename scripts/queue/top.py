"""top — `pillarbox queue top`: the queue as it changes, until Ctrl-C

Owns: the live table: states, the fullest destinations, and the changes of both since the last reading.
Guarantees: reads only, the queue once for each look, at most one look in `--every`. In a pipe or a file each look is
    printed at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from operate.queue.query import asked
from scripts.options import count, duration, finish
from scripts.output import records
from scripts.output.table import Column, Table, terminal_width
from scripts.queue.query import add_condition, run

if TYPE_CHECKING:
    import argparse

    from shared.postgres import database

_SHORTEST: Final = 0.2  # seconds


def add_verbs(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    verb = under.add_parser("top", help="states and fullest destinations, live")
    add_condition(verb)
    verb.add_argument("--every", type=duration, default="2s", metavar="DURATION", help="how often to look (2s)")
    verb.add_argument("--limit", type=count, default=15, metavar="N", help="at most N destinations (15)")
    verb.add_argument("--times", type=count, metavar="N", help="end after so many looks")
    finish(verb, top, acting=True)


def top(options: argparse.Namespace) -> int:
    """Show the queue until Ctrl-C."""

    async def watch(connection: database.Connection) -> None:
        every = max(_SHORTEST, options.every.total_seconds())
        before: dict[tuple[str, str], int] = {}  # by heading and value: a domain may be called like a state
        looks = 0
        with Live(console=Console(), auto_refresh=False, screen=False) as live:
            while options.times is None or looks < options.times:
                if looks:
                    await asyncio.sleep(every)
                looks += 1
                states, fullest = await _counted(connection, options)
                if options.json:
                    figures = {"states": _numbers(states), "destinations": _numbers(fullest)}
                    records.one(figures)
                    continue
                tables = (_table("state", states, before), _table("destination", fullest, before))
                if live.console.is_terminal:
                    live.update(Group(*tables), refresh=True)
                else:  # every look is printed, at its full width
                    print(*(table.plain for table in tables), sep="\n")
                looked = (("state", states), ("destination", fullest))
                before = {(head, row.value): row.recipients for head, rows in looked for row in rows}

    run(options, watch)
    return 0


async def _counted(
    connection: database.Connection, options: argparse.Namespace
) -> tuple[list[database.Row], list[database.Row]]:
    """The states, and the fullest destinations."""
    asking = await asked(connection, options.condition)
    rows = await asking.fetch(connection, "queue_top", limit=options.limit)
    return [row for row in rows if row.is_state], [row for row in rows if not row.is_state]


def _numbers(rows: list[database.Row]) -> dict[str, int]:
    return {row.value: row.recipients for row in rows}


def _table(head: str, rows: list[database.Row], before: dict[tuple[str, str], int]) -> Text:
    columns = (
        Column(head, least=16, whole=True),
        *(Column(name, right=True) for name in ("recipients", "change", "MiB")),
        Column("oldest"),
    )

    def cells(row: database.Row) -> tuple[object, ...]:
        known = before.get((head, row.value))
        change = None if known is None else row.recipients - known
        return (
            row.value,
            row.recipients,
            None if change is None else f"{change:+}",
            f"{row.bytes / 2**20:.1f}",
            row.oldest,
        )

    return Text.from_ansi("\n".join(Table(columns, width=terminal_width()).lines(map(cells, rows))))
