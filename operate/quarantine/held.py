"""held — the quarantines, the mail that is held in them, and one message of it made safe to look at

Guarantees: reads only. At most MOST_READ octets of a message are read.
Raises: Refused and its kinds.
See: operate/mime/render.py.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from operate.errors import NotThere, Refused
from operate.mime.render import NotShown, fields_of, render
from operate.quarantine.access import narrowed
from operate.queue.query import asked
from operate.shapes.mail import Held, HeldMessage, Part, Quarantine
from shared.config.units import format_duration, format_size
from shared.postgres import database

if TYPE_CHECKING:
    from operate.quarantine.access import Access
    from operate.queue.query import Query

MOST_READ: Final = 32 * 2**20  # octets of a message that `message` looks at
BEGINNING: Final = 16_384  # octets of a message in which its subject is looked for
_PORTION: Final = 200


async def quarantines(connection: database.Connection, access: Access) -> list[Quarantine]:
    """Every quarantine: the fullest first, then what is declared and empty."""
    held = {row.id: row for row in await database.fetch(connection, "quarantine_list")}
    every = [*held, *(name for name in access.quarantines if name not in held)]
    return [_quarantine(name, held.get(name), access) for name in every]


def _quarantine(name: str | None, row: database.Row | None, access: Access) -> Quarantine:
    known = access.quarantines.get(name or "")
    return Quarantine(
        id=name,
        description=known.description if known else None,
        retention=format_duration(known.retention) if known and known.retention else None,
        reviewers=list(known.reviewers) if known else [],
        may=access.may(name) and (row is None or row.may),
        recipients=row.recipients if row else 0,
        messages=row.messages if row else 0,
        bytes=row.bytes if row else 0,
        oldest=row.oldest if row else None,
        latest=row.latest if row else None,
    )


async def mail(connection: database.Connection, asking: Query, *, after: int, limit: int) -> list[Held]:
    """At most `limit` of the held recipients that fit, from the one after this id on."""
    found: list[Held] = []
    while len(found) < limit:
        portion = min(limit - len(found), _PORTION)
        rows = await asking.fetch(connection, "quarantine_mail", after=after, limit=portion, most=BEGINNING)
        if not rows:
            break
        found += [_summary(row) for row in rows]
        after = rows[-1].id
    return found


def _summary(row: database.Row) -> Held:
    """The values by which a reviewer distinguishes held messages."""
    fields = {name: value for name, value in row._asdict().items() if name != "beginning"}
    subject = fields_of(bytes(row.beginning)).get("Subject", "") if row.beginning is not None else None
    return Held(**fields, subject=subject)


async def message(connection: database.Connection, access: Access, id_: str, part: int | None = None) -> HeldMessage:
    """One held message, by a recipient's number or its own id; the text of this part, as `parts` numbers them."""
    words = (await narrowed(connection, access, "show", [id_])).words
    asking = await asked(connection, words)
    rows = await asking.fetch(connection, "quarantine_mail", after=0, limit=1, most=0)
    if not rows:
        raise NotThere(f"quarantine show: {id_} is not held any more")
    bodies = await database.fetch(connection, "queue_content", message=rows[0].message, most=MOST_READ)
    body = bodies[0] if bodies else None
    try:
        shown = render(bytes(body.content) if body else b"", part)
    except NotShown as reason:
        raise Refused(f"quarantine show: part: {reason}", f"quarantine show: --part: {reason}") from None
    notes = list(shown.notes) if body else ["the message has no body"]
    if body and body.size > MOST_READ:
        notes.append(f"only the first {format_size(MOST_READ)} of {format_size(body.size)} were looked at")
    envelope = {name: value for name, value in rows[0]._asdict().items() if name != "beginning"}
    parts = [Part(**asdict(each)) for each in shown.parts]
    return HeldMessage(**envelope, header=shown.header, text=shown.text, parts=parts, notes=notes)
