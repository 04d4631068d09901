"""show — `pillarbox quarantine list|show`: lists held mail, and shows a message

Owns: these verbs, their tables and their JSON.
Guarantees: reads only. Content of a message has no effect on a terminal, and each line of its text has a bar before
    it, so that none can pass for one of ours. At most MOST_READ octets of a message are read.
See: operate/mime/render.py; docs/how-to/review-quarantined-mail.md.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from operate.condition.ids import is_message, is_msgid, is_recipient
from operate.mime.render import NotShown, fields_of, render
from scripts.options import count, finish
from scripts.output import records
from scripts.output.records import fields
from scripts.output.table import Column, Table, pairs
from scripts.quarantine.access import admit, narrowed
from scripts.queue.query import add_condition, asked, run
from scripts.terminal import printable
from shared.config.smtpd.load import load_smtpd
from shared.config.units import format_duration, format_size
from shared.errors import PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    from operate.mime.render import Shown
    from scripts.quarantine.access import Access
    from shared.config.smtpd.quarantine import Quarantine

MOST_READ: Final = 32 * 2**20  # octets of a message that `show` looks at
BEGINNING: Final = 16_384  # octets of a message in which its subject is looked for
_PORTION: Final = 200
_QUARANTINES: Final = (
    Column("quarantine", least=16, whole=True),
    Column("recipients", right=True),
    Column("messages", gives=1, right=True),
    Column("size", gives=2, right=True),
    Column("oldest", gives=4),
    Column("kept", gives=5),
    Column("reviewers", gives=3, least=10),
    Column("description", gives=6, least=12),
)
_MAIL: Final = (
    Column("id", right=True),
    Column("recipient", least=24, whole=True),
    Column("quarantine", gives=3, least=8),
    Column("received", gives=4),
    Column("sender", gives=5, least=20, whole=True),
    Column("size", gives=1, right=True),
    Column("reason", gives=2, least=10),
    Column("subject", gives=6, least=10),
)
_PARTS: Final = (
    Column("part", right=True),
    Column("type"),
    Column("size", right=True),
    Column("attached"),
    Column("name", wraps=True),
)


def add_verbs(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs that look."""
    verb = under.add_parser("list", help="the quarantines; with a condition, the mail that is held")
    add_condition(verb, all_=True)
    verb.add_argument("--limit", type=count, default=50, metavar="N", help="at most so many (50)")
    verb.add_argument("--after", type=int, default=0, metavar="ID", help="from the one after this id on")
    finish(verb, list_, acting=True)

    verb = under.add_parser("show", help="one held message: envelope, header, text and parts, made safe to look at")
    verb.add_argument("id", type=_id, metavar="ID", help="the recipient's id, as shown by `list`, or its message's")
    verb.add_argument("--part", type=count, metavar="N", help="the text of this part, as the list of parts numbers it")
    finish(verb, show, acting=True)


def _id(text: str) -> str:
    if is_recipient(text) or is_message(text) or is_msgid(text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is neither the number of a recipient nor a message id")


def list_(options: argparse.Namespace) -> int:
    """Print the quarantines, or the mail that fits."""
    options.verb = "list"
    return _mail(options) if options.condition or options.all else _quarantines(options)


def _quarantines(options: argparse.Namespace) -> int:
    settings = load_smtpd(options.config / "smtpd.yaml")

    async def read(connection: database.Connection) -> tuple[Access, list[database.Row]]:
        return await admit(connection, settings), await database.fetch(connection, "quarantine_list")

    access, rows = run(options, read)
    held = {row.id: row for row in rows}
    # The fullest first, then what is declared and empty.
    every = [*held, *(name for name in access.quarantines if name not in held)]
    told = [_quarantine(name, access.quarantines.get(name or ""), held.get(name), access) for name in every]
    if options.json:
        records.lines(told)
        return 0
    Table(_QUARANTINES).print(map(_cells, zip(told, (held.get(each["id"]) for each in told), strict=True)))
    return 0


def _cells(known: tuple[dict[str, Any], database.Row | None]) -> tuple[object, ...]:
    """One quarantine as a row of the table, with the mail that it holds."""
    each, row = known
    size, who = format_size(each["bytes"]) if each["bytes"] else "0", ", ".join(each["reviewers"]) or "all"
    name, kept = "(none)" if each["id"] is None else each["id"], each["retention"] or "until decided"
    who = who if each["may"] else f"{who} (not you)"
    oldest = row.oldest if row else None
    return name, each["recipients"], each["messages"], size, oldest, kept, who, each["description"]


def _quarantine(name: str | None, known: Quarantine | None, row: database.Row | None, access: Access) -> dict[str, Any]:
    """One quarantine as JSON."""
    return {
        "id": name,
        "description": known.description if known else None,
        "retention": format_duration(known.retention) if known and known.retention else None,
        "reviewers": list(known.reviewers) if known else [],
        "may": access.may(name),
        "recipients": row.recipients if row else 0,
        "messages": row.messages if row else 0,
        "bytes": row.bytes if row else 0,
        "oldest": row.oldest.isoformat() if row else None,
        "latest": row.latest.isoformat() if row else None,
    }


def _mail(options: argparse.Namespace) -> int:
    settings = load_smtpd(options.config / "smtpd.yaml")

    async def read(connection: database.Connection) -> list[dict[str, object]]:
        asking = await narrowed(connection, await admit(connection, settings), options)
        found: list[dict[str, object]] = []
        after = options.after
        while len(found) < options.limit:
            portion = min(options.limit - len(found), _PORTION)
            rows = await asking.fetch(connection, "quarantine_mail", after=after, limit=portion, most=BEGINNING)
            if not rows:
                break
            found += map(summary, rows)
            after = rows[-1].id
        return found

    rows = run(options, read)
    if options.json:
        records.lines(rows)
        return 0
    Table(_MAIL).print([row[column.name] for column in _MAIL] for row in rows)
    print(f"shown: {len(rows)}" + (f"; the next: --after {rows[-1]['id']}" if len(rows) == options.limit else ""))
    return 0


def summary(row: database.Row) -> dict[str, object]:
    """The values by which a reviewer distinguishes held messages."""
    told: dict[str, object] = {name: value for name, value in row._asdict().items() if name != "beginning"}
    told["subject"] = fields_of(bytes(row.beginning)).get("Subject", "") if row.beginning is not None else None
    return told


def show(options: argparse.Namespace) -> int:
    """Print one held message."""
    options.verb, options.condition = "show", [options.id]
    settings = load_smtpd(options.config / "smtpd.yaml")

    async def read(connection: database.Connection) -> tuple[database.Row, database.Row | None]:
        access = await admit(connection, settings)
        await narrowed(connection, access, options)
        asking = await asked(connection, options.condition)
        rows = await asking.fetch(connection, "quarantine_mail", after=0, limit=1, most=0)
        if not rows:
            raise PillarboxError(f"quarantine show: {options.id} is not held any more")
        bodies = await database.fetch(connection, "queue_content", message=rows[0].message, most=MOST_READ)
        return rows[0], bodies[0] if bodies else None

    row, body = run(options, read)
    try:
        shown = render(bytes(body.content) if body else b"", options.part)
    except NotShown as reason:
        raise PillarboxError(f"quarantine show: --part: {reason}") from None
    notes = list(shown.notes) if body else ["the message has no body"]
    if body and body.size > MOST_READ:
        notes.append(f"only the first {format_size(MOST_READ)} of {format_size(body.size)} were looked at")
    if options.json:
        envelope = {name: value for name, value in fields(row).items() if name != "beginning"}
        parts = [asdict(part) for part in shown.parts]
        told = {**envelope, "header": shown.header, "text": shown.text, "parts": parts, "notes": notes}
        records.one(told)
        return 0
    _print_message(row, shown, notes)
    return 0


def _print_message(row: database.Row, shown: Shown, notes: list[str]) -> None:
    known = [(name, value) for name, value in row._asdict().items() if name != "beginning" and value is not None]
    pairs([*known, *((f"{name}:", said) for name, said in shown.header.items())])
    print()
    for line in shown.text.splitlines():
        print(printable(f"│ {line}"))
    if shown.parts:
        print()
        Table(_PARTS).print(
            (number, part.type, format_size(part.size) if part.size else "0", part.attached, part.name)
            for number, part in enumerate(shown.parts, 1)
        )
    for note in notes:
        print(f"note: {note}")
