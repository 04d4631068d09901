"""show — `pillarbox queue list|group|show|shape`: shows queued mail, and why it waits

Owns: these verbs, their tables and their JSON.
Guarantees: reads only. Lists are printed a portion at a time.
See: operate/queue/look.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.queue import look
from operate.queue.query import asked
from scripts.options import between, count, finish
from scripts.output import records
from scripts.output.records import fields
from scripts.output.table import Column, Table, pairs
from scripts.queue.query import add_condition, run
from shared.how_many import how_many
from shared.whole_number import LARGEST

if TYPE_CHECKING:
    import argparse

    from shared.postgres import database

_COLUMNS: Final = (
    Column("id", right=True),
    Column("state"),
    Column("recipient", least=30, whole=True),
    Column("received", gives=6),
    Column("sender", gives=4, least=20, whole=True),
    Column("size", gives=2, right=True),
    Column("retry_count", gives=3, right=True),
    Column("next_retry", gives=5),
    Column("message", gives=1),
    Column("last_error", gives=7, least=12),
)
#: The tries of a recipient, in `show` and in `deadletters show`.
TRIES: Final = (
    Column("when"),
    Column("try", right=True),
    Column("outcome"),
    Column("peer"),
    Column("reply", wraps=True),
)
_NOTHING: Final = "0 matching recipients"
_ADDRESSES: Final = frozenset({"sender", "recipient", "from", "to"})


def add_verbs(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs that look."""
    verb = under.add_parser("list", help="matching recipients, in order of arrival")
    add_condition(verb)
    verb.add_argument("--limit", type=count, default=50, metavar="N", help="at most N (50)")
    verb.add_argument("--after", type=between(0, LARGEST), default=0, metavar="ID", help="start after this id")
    finish(verb, list_, acting=True)

    verb = under.add_parser("group", help="count matching recipients by column values")
    verb.add_argument("by", metavar="COLUMN[,COLUMN…]", help="such as recipientdomain or state,transport")
    add_condition(verb)
    verb.add_argument("--limit", type=count, default=50, metavar="N", help="at most N groups (50)")
    finish(verb, group, acting=True)

    verb = under.add_parser("show", help="one recipient: envelope, header, tries, when the next one is and why")
    verb.add_argument(
        "id",
        metavar="ID",
        help="the number of a recipient, as `list` prints it; the id of its message; or a <Message-ID>",
    )
    finish(verb, show, acting=True)

    verb = under.add_parser("shape", help="queued mail by destination and age in minutes, largest first")
    add_condition(verb)
    verb.add_argument("--limit", type=count, default=20, metavar="N", help="at most N destinations (20)")
    finish(verb, shape, acting=True)


def list_(options: argparse.Namespace) -> int:
    """Print the recipients that fit."""

    async def read(connection: database.Connection) -> tuple[int, int, int]:
        asking = await asked(connection, options.condition)
        after, shown, table = options.after, 0, Table(_COLUMNS)
        async for rows in look.recipients(connection, asking, after=after, limit=options.limit):
            if options.json:
                records.lines(map(fields, rows))
            else:
                table.print([getattr(row, column.name) for column in _COLUMNS] for row in rows)
            shown, after = shown + len(rows), rows[-1].id
        return shown, 0 if options.json else await look.count(connection, asking), after

    shown, fitting, last = run(options, read)
    if not options.json:
        print(
            f"{how_many(fitting, 'matching recipient')}; shown: {shown}"
            + (f"; the next: --after {last}" if shown == options.limit else "")
        )
    return 0


def group(options: argparse.Namespace) -> int:
    """Print how many fit, by columns."""
    names = [name.strip() for name in options.by.split(",")]
    look.check_columns(names)
    found = run(options, lambda connection: look.grouped(connection, names, options.condition, options.limit))
    if options.json:
        records.lines(each.model_dump() for each in found)
        return 0
    if not found:
        print(_NOTHING)
    columns_of = (
        *(Column(name, least=24, whole=name in _ADDRESSES) for name in names),
        Column("recipients", right=True),
        Column("messages", gives=2, right=True),
        Column("MiB", gives=1, right=True),
        Column("oldest", gives=4),
        Column("next due", gives=3),
    )
    Table(columns_of).print(
        (
            *map(each.value.get, names),
            each.recipients,
            each.messages,
            f"{each.bytes / 2**20:.1f}",
            each.oldest,
            each.next_retry,
        )
        for each in found
    )
    return 0


def shape(options: argparse.Namespace) -> int:
    """Print what waits by destination and age."""
    found = run(options, lambda connection: look.shape(connection, options.condition, options.limit))
    if options.json:
        records.lines(each.model_dump() for each in found)
        return 0
    if not found:
        print(_NOTHING)
    columns = (Column("destination", least=16, whole=True), *(Column(head, right=True) for head in ("T", *look.AGES)))
    Table(columns).print(
        ("TOTAL" if each.domain is None else each.domain, each.total, *each.minutes.values()) for each in found
    )
    return 0


def show(options: argparse.Namespace) -> int:
    """Print one recipient, or each of a message."""
    for index, seen in enumerate(run(options, lambda connection: look.show(connection, options.id))):
        if options.json:
            attempts = [fields(each) for each in seen.tries]
            records.one({**fields(seen.row), "why": seen.why, "header": seen.header, "attempts": attempts})
            continue
        if index:
            print()
        values = [("why", seen.why), *((f"{name}:", value) for name, value in seen.header.items())]
        pairs([*seen.row._asdict().items(), *values])
        if seen.tries:
            print()
            Table(TRIES).print((t.ts, t.retry_count, t.outcome, t.remote, t.reply_text) for t in seen.tries)
    return 0
