"""message — one message with its recipients, queued or finished, and every try at each

Guarantees: reads only; finished recipients are shown as long as the archive is kept, tries as long as history is.
Raises: NotThere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.errors import NotThere
from operate.shapes.message import Message, MessageRecipient, Try
from shared.postgres import database

if TYPE_CHECKING:
    from uuid import UUID

_MOST_RECIPIENTS: Final = 10_000
_MOST_TRIES: Final = 20_000


async def message(connection: database.Connection, id_: UUID, *, own: bool) -> Message:
    """The message with this id. own: only if it was sent in the name of whom the connection acts for."""
    rows = await database.fetch(connection, "message_recipients", message=id_, own=own, limit=_MOST_RECIPIENTS)
    if not rows:
        raise NotThere(f"there is no message {id_}, or it is older than history is kept")
    tries: dict[int, list[Try]] = {}
    for row in await database.fetch(connection, "message_attempts", message=id_, limit=_MOST_TRIES):
        tries.setdefault(row.id, []).append(Try.model_validate({k: v for k, v in row._asdict().items() if k != "id"}))
    first = rows[0]
    return Message(
        id=id_,
        message_id=first.msgid,
        subject=first.subject,
        sender=first.sender,
        principal=first.saslusername,
        received=min(row.ts for row in rows),
        size=first.size,
        priority=first.priority,
        recipients=[
            MessageRecipient(
                id=row.id,
                address=row.address,
                state=row.state,
                retry_count=row.retry_count,
                next_retry=row.next_retry,
                finished=row.finished,
                last_error=row.last_error,
                metadata={key: value for key, value in (row.metadata or {}).items() if not key.startswith("_")},
                attempts=tries.get(row.id, []),
            )
            for row in rows
        ],
    )
