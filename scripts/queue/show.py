"""show — `pillarbox queue list|group|show|shape`: shows queued mail, and why it waits

Owns: these verbs, their tables and their JSON.
Guarantees: reads only. Lists are read a portion at a time, so that a million rows take no more memory than a thousand.
See: Postfix qshape(1), the model for `shape`.
"""

from __future__ import annotations

import difflib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from operate.condition.fields import ALIASES, FIELDS, METADATA, find
from operate.condition.ids import is_message, is_msgid, is_recipient
from operate.doctor.checks import span
from operate.mime.render import fields_of
from scripts.options import count, finish
from scripts.output import records
from scripts.output.records import fields
from scripts.output.table import Column, Table, pairs
from scripts.queue.query import STATUSES, add_condition, asked, run
from shared.errors import PillarboxError
from shared.how_many import how_many
from shared.postgres import database

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

_PORTION: Final = 1000
_BOUNDS: Final = (5, 10, 20, 40, 80, 160, 320, 640, 1280)  # minutes, as qshape's
_LATE: Final = timedelta(minutes=1)  # due for longer, mail waits for something else than its turn
_HEADER: Final = 64 * 1024  # octets of a message read for `show`
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
_UNGROUPED: Final = frozenset({"time", "age", "wait"})


def add_verbs(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs that look."""
    verb = under.add_parser("list", help="matching recipients, in order of arrival")
    add_condition(verb)
    verb.add_argument("--limit", type=count, default=50, metavar="N", help="at most so many (50)")
    verb.add_argument("--after", type=int, default=0, metavar="ID", help="from the one after this id on")
    finish(verb, list_, acting=True)

    verb = under.add_parser("group", help="count matching recipients by column values")
    verb.add_argument("by", metavar="COLUMN[,COLUMN…]", help="such as recipientdomain or state,transport")
    add_condition(verb)
    verb.add_argument("--limit", type=count, default=50, metavar="N", help="at most so many groups (50)")
    finish(verb, group, acting=True)

    verb = under.add_parser("show", help="one recipient: envelope, header, tries, when the next one is and why")
    verb.add_argument(
        "id", metavar="ID", help="its number, as `list` tells it, the id of its message, or a <Message-ID>"
    )
    finish(verb, show, acting=True)

    verb = under.add_parser("shape", help="queued mail by destination and age in minutes, largest first")
    add_condition(verb)
    verb.add_argument("--limit", type=count, default=20, metavar="N", help="at most so many destinations (20)")
    finish(verb, shape, acting=True)


def list_(options: argparse.Namespace) -> int:
    """Print the recipients that fit."""

    async def read(connection: database.Connection) -> tuple[int, int, int]:
        asking = await asked(connection, options.condition)
        after, shown, table = options.after, 0, Table(_COLUMNS)
        while shown < options.limit:
            portion = min(options.limit - shown, _PORTION)
            rows = await asking.fetch(connection, "queue_list", after=after, statuses=list(STATUSES), limit=portion)
            if not rows:
                break
            if options.json:
                records.lines(map(fields, rows))
            else:
                table.print([getattr(row, column.name) for column in _COLUMNS] for row in rows)
            shown, after = shown + len(rows), rows[-1].id
        if options.json:
            return shown, 0, after
        [counted] = await asking.fetch(connection, "queue_count", statuses=list(STATUSES))
        return shown, counted.recipients, after

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
    values: dict[str, Any] = {}
    columns = ", ".join(_column(name, values) for name in names)

    async def read(connection: database.Connection) -> list[database.Row]:
        asking = await asked(connection, options.condition)
        return await asking.fetch(connection, "queue_group", columns=columns, limit=options.limit, **values)

    rows = run(options, read)
    if options.json:
        records.lines({**fields(row), "value": dict(zip(names, row.value, strict=True))} for row in rows)
        return 0
    if not rows:
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
        (*row.value, row.recipients, row.messages, f"{row.bytes / 2**20:.1f}", row.oldest, row.next_retry)
        for row in rows
    )
    return 0


def _column(name: str, values: dict[str, Any]) -> str:
    """A column to group by, as SQL; metadata keys are bound."""
    field = find(name)
    if field is None or field.kind in _UNGROUPED:
        allowed = [known for known, each in FIELDS.items() if each.kind not in _UNGROUPED]
        near = difflib.get_close_matches(name.lower(), [*allowed, *ALIASES], 1)
        suggestion = f"; did you mean {near[0]}?" if near else ""
        columns = f"{', '.join(allowed)}, metadata.KEY{suggestion}"
        raise PillarboxError(f"queue group: {name!r} is not a column to group by; allowed: {columns}")
    if name.lower().startswith(METADATA):
        values[f"key{len(values)}"] = name[len(METADATA) :]
        return f"q.metadata->>%(key{len(values) - 1})s::text"
    side = ALIASES.get(name.lower(), name.lower())
    if field.kind == "state":
        return "q.state"
    if field.kind == "address":
        return f"coalesce(q.{side}localpart || '@' || q.{side}domain, '<>')"
    return f"({field.column})::text"


def shape(options: argparse.Namespace) -> int:
    """Print what waits by destination and age."""

    async def read(connection: database.Connection) -> list[database.Row]:
        asking = await asked(connection, options.condition)
        return await asking.fetch(connection, "queue_shape", bounds=list(_BOUNDS), limit=options.limit)

    rows = run(options, read)
    heads = [str(bound) for bound in _BOUNDS] + [f"{_BOUNDS[-1]}+"]
    if options.json:
        records.lines(
            {"domain": row.domain, "total": row.total, "minutes": dict(zip(heads, _buckets(row), strict=True))}
            for row in rows
        )
        return 0
    if not rows:
        print(_NOTHING)
    columns = (Column("destination", least=16, whole=True), *(Column(head, right=True) for head in ("T", *heads)))
    Table(columns).print(("TOTAL" if row.domain is None else row.domain, row.total, *_buckets(row)) for row in rows)
    return 0


def _buckets(row: database.Row) -> list[int]:
    return [row.counts.get(str(bucket), 0) for bucket in range(len(_BOUNDS) + 1)]


def show(options: argparse.Namespace) -> int:
    """Print one recipient, or each of a message."""
    if not is_recipient(options.id) and not is_message(options.id) and not is_msgid(options.id):
        raise PillarboxError(f"queue show: {options.id!r} is neither the number of a recipient nor a message id")

    async def read(connection: database.Connection) -> tuple[list[_Seen], datetime]:
        asking = await asked(connection, [options.id])
        rows = await asking.fetch(connection, "queue_list", after=0, statuses=list(STATUSES), limit=_PORTION)
        return [await _seen(connection, row) for row in rows], asking.now

    found, now = run(options, read)
    if not found:
        raise PillarboxError(f"queue show: {options.id} is not in the queue: see `pillarbox queue trace {options.id}`")
    for index, (row, tries, header) in enumerate(found):
        if options.json:
            attempts = [fields(each) for each in tries]
            records.one({**fields(row), "why": why(row, now), "header": header, "attempts": attempts})
            continue
        if index:
            print()
        values = [("why", why(row, now)), *((f"{name}:", value) for name, value in header.items())]
        pairs([*row._asdict().items(), *values])
        if tries:
            print()
            Table(TRIES).print((t.ts, t.retry_count, t.outcome, t.remote, t.reply_text) for t in tries)
    return 0


class _Seen(NamedTuple):
    """A recipient, its tries, and its message's header."""

    row: database.Row
    tries: list[database.Row]
    header: dict[str, str]


async def _seen(connection: database.Connection, row: database.Row) -> _Seen:
    tries = await database.fetch(connection, "deadletters_attempts", id=row.id, message=row.message)
    content = await database.fetch(connection, "queue_content", message=row.message, most=_HEADER)
    return _Seen(row, tries, fields_of(content[0].content) if content else {})


def why(row: database.Row, now: datetime) -> str:
    """Why a recipient is not delivered yet, in one sentence."""
    wait = span(row.next_retry - now)
    due = "due: a worker takes it as soon as it has room"
    if (late := now - row.next_retry) > _LATE:
        doctor = f"`pillarbox doctor` says whether one serves partition {row.partition or 'NULL'}"
        due = f"due for {span(late)}, but no worker has taken it: {doctor}"
    return {
        "HOLD": f"on hold in {row.quarantine!r}" if row.quarantine else "on hold",
        "SENDING": f"claimed by {row.worker}",
        "ACTIVE": due,
        "SCHEDULED": f"to be sent in {wait}",
        "DEFER": f"tried {how_many(row.retry_count, 'time')}; the next try is in {wait}",
        "DELETE": "deleted: the next round of maintenance finishes it",
        "BOUNCE": "bounced: the next round of maintenance finishes it",
    }[row.state]
