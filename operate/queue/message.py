"""message — one message with its recipients, queued or finished, and every try at each

Owns: looking at messages, and what their own senders may do with them: cancel, and send at another time.
Guarantees: finished recipients are shown as long as the archive is kept, tries as long as history is. Who cancels or
    reschedules is judged by PostgreSQL: the view own_mail has nothing of others.
Raises: NotThere, NotNow, Refused.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from operate.condition.words import words_of
from operate.errors import NotNow, NotThere
from operate.queue.query import asked
from operate.shapes.mail import Attempt
from operate.shapes.message import Message, MessageRecipient
from shared.postgres import database

if TYPE_CHECKING:
    from uuid import UUID

_MOST_RECIPIENTS: Final = 10_000
_MOST_TRIES: Final = 20_000
#: How far the clock of a host that makes ids may be ahead of PostgreSQL's; `pillarbox doctor` alarms from 5 s on.
_AHEAD: Final = timedelta(days=1)
_LAST: Final = 253_402_300_799_999  # milliseconds: the end of the year 9999


async def message(connection: database.Connection, id_: UUID, *, own: bool) -> Message:
    """The message with this id. own: only if it was sent in the name of whom the connection acts for."""
    since = {"since": _since(id_)}
    rows = await database.fetch_filled(
        connection, "message_recipients", since, message=id_, own=own, limit=_MOST_RECIPIENTS
    )
    if not rows:
        raise NotThere(f"message {id_} does not exist, or it is older than history is kept")
    tries: dict[int, list[Attempt]] = {}
    for row in await database.fetch_filled(connection, "message_attempts", since, message=id_, limit=_MOST_TRIES):
        tries.setdefault(row.id, []).append(
            Attempt.model_validate({k: v for k, v in row._asdict().items() if k != "id"})
        )
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


def _since(id_: UUID) -> str:
    """A day as SQL before which nothing became of this message: a UUIDv7 says when it was made (RFC 9562 section 5.7).

    Otherwise a look-up opens every day of history, and to plan it locks each with all its indexes.
    """
    made = id_.int >> 80  # milliseconds since 1970
    if id_.version != 7 or made > _LAST:  # noqa: PLR2004 - the version
        return "timestamptz '-infinity'"
    return f"timestamptz '{datetime.fromtimestamp(made / 1000, UTC) - _AHEAD:%Y-%m-%d} 00:00Z'"


async def listed(
    connection: database.Connection, condition: str, *, own: bool, after: int, limit: int
) -> list[database.Row]:
    """Queued recipients that fit, after this id; rows have the fields of shapes.mail.Recipient."""
    asking = await asked(connection, words_of(condition))
    return await asking.fetch(connection, "message_list", own=own, after=after, limit=limit)


async def cancel(connection: database.Connection, id_: UUID) -> int:
    """Cancel what is left of a message of whom we act for; how many recipients."""
    async with connection.transaction():
        left = await _left(connection, id_)
        rows = await database.fetch(connection, "message_cancel", message=id_)
    if not rows:
        raise NotNow(f"message {id_} cannot be cancelled: {_states(left)}")
    return len(rows)


async def reschedule(connection: database.Connection, id_: UUID, at: datetime) -> int:
    """Make a message of whom we act for due at another time; how many recipients."""
    async with connection.transaction():
        left = await _left(connection, id_)
        rows = await database.fetch(connection, "message_reschedule", message=id_, at=at)
    if not rows:
        raise NotNow(f"message {id_} cannot be rescheduled: {_states(left)}; allowed: mail that was not tried yet")
    return len(rows)


async def _left(connection: database.Connection, id_: UUID) -> list[database.Row]:
    """What is queued of it; NotThere where it is not theirs, NotNow where it has finished."""
    rows = await database.fetch(connection, "message_own", message=id_)
    if not rows:
        await message(connection, id_, own=True)
        raise NotNow(f"message {id_} has finished")
    return rows


def _states(rows: list[database.Row]) -> str:
    return "its recipients are in state " + ", ".join(sorted({row.state for row in rows}))
