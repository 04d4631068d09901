"""history — everything that happened to a message, and the commands that changed the queue

Guarantees: reads only; finished mail is shown as long as the archive is kept, its tries as long as history is.
Raises: Refused and NotThere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from operate.condition.ids import is_message, is_msgid, is_recipient
from operate.errors import NotThere, Refused
from shared.mail import found_by
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    from shared.postgres.database import Connection, Row


async def trace(connection: Connection, id_: str, limit: int) -> list[Row]:
    """The history of a message, by its id or a recipient's number, or of all with a Message-ID.

    Rows have the fields of shapes.mail.Event.
    """
    messages = await _messages(connection, id_)
    rows = await database.fetch(connection, "queue_trace", messages=messages, limit=limit)
    if not rows:
        raise NotThere(f"queue trace: no history of {id_}: never queued, or older than maintenance.keep.find")
    return rows


async def _messages(connection: Connection, id_: str) -> list[UUID]:
    """The messages meant: by its own id, by a recipient's number, or all that have a Message-ID."""
    if is_message(id_):
        return [UUID(id_)]
    if is_msgid(id_):
        return await with_msgid(connection, id_)
    if not is_recipient(id_):
        why = f"queue trace: {show(id_)} is neither a message id nor the number of a recipient"
        hint = f"; `pillarbox queue list recipient={id_}` lists its queued mail" if "@" in id_ else ""
        raise Refused(why, f"{why}{hint}; write a Message-ID in <>" if hint else why)
    rows = await database.fetch(connection, "queue_message_of", id=int(id_))
    return [row.message for row in rows]


async def with_msgid(connection: Connection, msgid: str) -> list[UUID]:
    """The messages, queued or finished, with this Message-ID."""
    rows = await database.fetch(connection, "queue_messages_with_msgid", msgid=found_by.asked(msgid))
    return [row.message for row in rows]


async def audit(connection: Connection, id_: int | None, limit: int, before: int | None = None) -> list[Row]:
    """Commands that changed the queue, the latest first, or this one; rows as shapes.mail.Command.

    before: only those with lower numbers, to go on in a list.
    """
    rows = await database.fetch(connection, "audit_list", id=id_, limit=limit, before=before)
    if id_ is not None and not rows:
        raise NotThere(f"queue audit: audit row {id_} does not exist")
    return rows
