"""show — `pillarbox quarantine list|show`: lists held mail, and shows a message

Owns: these verbs, their tables and their JSON.
Guarantees: reads only. Content of a message has no effect on a terminal, and each line of its text has a bar before
    it, so that none can pass for one of ours.
See: operate/quarantine/held.py; docs/how-to/review/review-quarantined-mail.md.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from operate.condition.ids import is_message, is_msgid, is_recipient
from operate.quarantine import held
from operate.quarantine.access import admit
from scripts.options import between, count, finish
from scripts.output import records
from scripts.output.table import Column, Table, pairs
from scripts.quarantine.reviewing import narrow
from scripts.queue.query import add_condition, run
from scripts.terminal import printable
from shared import masking
from shared.config.smtpd.load import load_smtpd
from shared.config.units import format_size
from shared.whole_number import LARGEST

if TYPE_CHECKING:
    from operate.shapes.mail import Held, HeldMessage, Quarantine
    from shared.postgres import database

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
    verb.add_argument("--limit", type=count, default=50, metavar="N", help="at most N (50)")
    verb.add_argument("--after", type=between(0, LARGEST), default=0, metavar="ID", help="start after this id")
    finish(verb, list_, acting=True)

    verb = under.add_parser("show", help="one held message: envelope, header, text and parts, made safe to look at")
    verb.add_argument("id", type=_id, metavar="ID", help="the recipient's id, as shown by `list`, or its message's")
    verb.add_argument("--part", type=count, metavar="N", help="the text of this part, as the list of parts numbers it")
    finish(verb, show, acting=True)


def _id(text: str) -> str:
    if is_recipient(text) or is_message(text) or is_msgid(text):
        return text
    raise argparse.ArgumentTypeError(f"{masking.show(text)} is neither the number of a recipient nor a message id")


def list_(options: argparse.Namespace) -> int:
    """Print the quarantines, or the mail that fits."""
    options.verb = "list"
    return _mail(options) if options.condition or options.all else _quarantines(options)


def _quarantines(options: argparse.Namespace) -> int:
    settings = load_smtpd(options.config / "smtpd.yaml")

    async def read(connection: database.Connection) -> list[Quarantine]:
        return await held.quarantines(connection, await admit(connection, settings))

    found = run(options, read)
    if options.json:
        records.lines(each.model_dump() for each in found)
        return 0
    Table(_QUARANTINES).print(map(_cells, found))
    return 0


def _cells(each: Quarantine) -> tuple[object, ...]:
    """One quarantine as a row of the table."""
    size, who = format_size(each.bytes) if each.bytes else "0", ", ".join(each.reviewers) or "all"
    name, kept = "(none)" if each.id is None else each.id, each.retention or "until decided"
    who = who if each.may else f"{who} (not you)"
    return name, each.recipients, each.messages, size, each.oldest, kept, who, each.description


def _mail(options: argparse.Namespace) -> int:
    settings = load_smtpd(options.config / "smtpd.yaml")

    async def read(connection: database.Connection) -> list[Held]:
        asking = (await narrow(connection, settings, options)).asking
        return await held.mail(connection, asking, after=options.after, limit=options.limit)

    found = run(options, read)
    if options.json:
        records.lines(each.model_dump() for each in found)
        return 0
    Table(_MAIL).print([getattr(each, column.name) for column in _MAIL] for each in found)
    print(f"shown: {len(found)}" + (f"; the next: --after {found[-1].id}" if len(found) == options.limit else ""))
    return 0


def show(options: argparse.Namespace) -> int:
    """Print one held message."""
    settings = load_smtpd(options.config / "smtpd.yaml")

    async def read(connection: database.Connection) -> HeldMessage:
        return await held.message(connection, await admit(connection, settings), options.id, options.part)

    found = run(options, read)
    if options.json:
        records.one(found.model_dump())
        return 0
    _print_message(found)
    return 0


def _print_message(found: HeldMessage) -> None:
    envelope = found.model_dump(exclude={"header", "text", "parts", "notes"}, exclude_none=True)
    pairs([*envelope.items(), *((f"{name}:", said) for name, said in found.header.items())])
    print()
    for line in found.text.splitlines():
        print(printable(f"│ {line}"))
    if found.parts:
        print()
        Table(_PARTS).print(
            (number, part.type, format_size(part.size) if part.size else "0", part.attached, part.name)
            for number, part in enumerate(found.parts, 1)
        )
    for note in found.notes:
        print(f"note: {note}")
