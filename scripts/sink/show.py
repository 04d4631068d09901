"""show — `pillarbox sink show`: lists the mail that the sink of `pillarbox up --sink` has taken, or shows one message

Owns: the verb, its lines and its JSON.
Guarantees: reads only, and needs neither the sink nor PostgreSQL. One line for each message. Content of a message
    has no effect on a terminal, and each line of its text has a bar before it.
Raises: PillarboxError for a message that is not there.
See: scripts/sink/store.py; operate/mime/render.py.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from operate.mime.render import render
from scripts.options import count, finish
from scripts.output import records
from scripts.output.table import Column, Table
from scripts.sink.store import Store
from scripts.terminal import printable
from shared.config.smtpd.load import load_smtpd
from shared.errors import PillarboxError
from shared.how_many import how_many
from shared.masking import show
from shared.whole_number import whole_number

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from operate.mime.render import Shown
    from scripts.sink.store import Taken

_MOST_READ: Final = 32 << 20  # octets of a message that are looked at
_COLUMNS: Final = (
    Column("number", right=True),
    Column("received", gives=2),
    Column("from", gives=3),
    Column("to", whole=True),
    Column("subject", gives=1, least=10),
)


def folder(var: Path) -> Path:
    """Where the sink of `pillarbox up --sink` keeps its mail."""
    return var / "sink"


def add_verb(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `show` to `pillarbox sink`."""
    verb = under.add_parser("show", help="list the mail that the sink of `pillarbox up` has taken, or show one message")
    verb.add_argument(
        "which", nargs="?", metavar="NUMBER|ID", help="its number in the list, the id in our reply, or its Message-ID"
    )
    verb.add_argument("--limit", type=count, default=50, metavar="N", help="list the newest N at most (50)")
    finish(verb, run)


def run(options: argparse.Namespace) -> int:
    """Print the list, or one message."""
    place = folder(load_smtpd(options.config / "smtpd.yaml").environment.var)
    if place.exists() and not os.access(place, os.R_OK | os.X_OK):
        raise PillarboxError(f"sink show: {place} may not be read by this user; run it as the user of `pillarbox up`")
    store = Store(place)
    if options.which is not None:
        return _show(found(store, options.which), as_json=options.json)
    numbers = store.numbers()
    newest = [taken for number in numbers[-options.limit :] if (taken := store.read(number))]
    if options.json:
        records.lines(taken.as_json() for taken in newest)
        return 0
    Table(_COLUMNS).print(map(_cells, newest))
    kept = f"{how_many(len(numbers), 'message')} in {store.folder}" if numbers else f"{store.folder} has no mail"
    print(f"{kept}; shown: {len(newest)}" if numbers else kept)
    return 0


def found(store: Store, which: str) -> Taken:
    """The message of this number, of this id in the queue, or with this Message-ID."""
    if (number := whole_number(which)) is not None:
        taken = store.read(number)
    else:
        every = (store.read(kept) for kept in reversed(store.numbers()))
        wanted = which.strip("<>")
        taken = next((each for each in every if each and wanted in {each.id, each.messageid.strip("<>")}), None)
    if taken is None:
        raise PillarboxError(
            f"sink show: message {show(which)} is not in {store.folder}; allowed: a number of `pillarbox sink show`, "
            "the id in the reply 250, or a Message-ID"
        )
    return taken


def _cells(taken: Taken) -> tuple[object, ...]:
    return taken.number, taken.at, taken.sender or "<>", ", ".join(taken.recipients), taken.subject


def _show(taken: Taken, *, as_json: bool) -> int:
    with taken.file.open("rb") as file:
        shown = render(file.read(_MOST_READ))
    if as_json:
        record = {"header": shown.header, "text": shown.text, "parts": [asdict(part) for part in shown.parts]}
        records.one({**taken.as_json(), **record, "notes": list(shown.notes)})
        return 0
    for line in _lines(taken, shown):
        print(line)
    return 0


def _lines(taken: Taken, shown: Shown) -> list[str]:
    facts = {
        "number": taken.number,
        "id": taken.id or None,
        "received": taken.at.strftime("%Y-%m-%d %H:%M:%SZ"),
        "sender": taken.sender or "<>",
        "recipients": ", ".join(taken.recipients),
        "size": how_many(taken.size, "octet"),
        "file": taken.file,
    }
    lines = [f"{name:10}  {printable(value)}" for name, value in facts.items() if value is not None]
    lines += ["", *(f"{name}: {printable(value)}" for name, value in shown.header.items()), ""]
    lines += [f"│ {printable(line)}" for line in shown.text.splitlines()]
    lines += [
        f"part {number}: {part.type}, {printable(part.name) or 'no name'}, {how_many(part.size, 'octet')}"
        for number, part in enumerate(shown.parts, 1)
        if len(shown.parts) > 1
    ]
    return [*lines, *(f"note: {note}" for note in shown.notes)]
