"""sql — sends inside the application's own database transaction

Owns: the calls of `pillarbox.enqueue` and `pillarbox.enqueue_batch`.
Guarantees: the mail exists if and only if the transaction commits; nothing here commits.
Raises: what the driver raises where PostgreSQL refuses: SQLSTATE 22023 for a bad value, 42501 for a sender that this
    login or principal may not use, 23505 for a key of another message. The transaction is then aborted.
See: docs/how-to/send/enqueue-from-sql.md of Pillarbox.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from pillarbox_client.compose import compose
from pillarbox_client.message import Message, address_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ENQUEUE: Final = (
    "SELECT pillarbox.enqueue(%s::text, %s::text[], %s::bytea, %s::text, %s::timestamptz, %s::integer, %s::jsonb,"
    " transportid => coalesce(%s::text, 'default'), jobid => %s::text)"
)
_BATCH: Final = "SELECT id FROM pillarbox.enqueue_batch(%s::jsonb) AS id"


class Cursor(Protocol):
    """A cursor of psycopg, Django or SQLAlchemy's raw connection."""

    def execute(self, query: Any, params: Any = ..., /) -> Any: ...  # noqa: D102
    def fetchone(self) -> Any: ...  # noqa: D102
    def fetchall(self) -> Any: ...  # noqa: D102


class Connection(Protocol):
    """A connection of psycopg or Django."""

    def cursor(self) -> Any: ...  # noqa: D102


class AsyncConnection(Protocol):
    """An asynchronous connection of psycopg."""

    def cursor(self) -> Any: ...  # noqa: D102


def send(
    where: Connection | Cursor,
    message: Message,
    *,
    idempotency_key: str | None = None,
    transport: str | None = None,
    job: str | None = None,
) -> UUID:
    """Queue a message in the transaction of this connection or cursor; its id.

    With a key that was used before for the same Message, nothing is queued and the first id comes back.
    """
    values = _values(message, idempotency_key, transport, job)
    with _cursor(where) as cursor:
        cursor.execute(_ENQUEUE, values)
        [id_] = cursor.fetchone()
    return UUID(str(id_))


async def send_async(
    where: AsyncConnection,
    message: Message,
    *,
    idempotency_key: str | None = None,
    transport: str | None = None,
    job: str | None = None,
) -> UUID:
    """As `send`, on an asynchronous connection of psycopg."""
    async with where.cursor() as cursor:
        await cursor.execute(_ENQUEUE, _values(message, idempotency_key, transport, job))
        [id_] = await cursor.fetchone()
    return UUID(str(id_))


def send_batch(
    where: Connection | Cursor, messages: Sequence[Message], *, idempotency_keys: Sequence[str | None] | None = None
) -> list[UUID]:
    """Queue many messages at once, all or none; their ids in order. The error of one names it, counted from 1."""
    keys = idempotency_keys if idempotency_keys is not None else [None] * len(messages)
    submissions = [
        {
            "sender": address_of(message.sender),
            "recipients": message.recipients,
            "content": _text(message, number),
            "idempotency_key": key,
            "deliver_at": message.scheduled_at.isoformat() if message.scheduled_at else None,
            "priority": message.priority,
            "metadata": message.own_metadata,
        }
        for number, (message, key) in enumerate(zip(messages, keys, strict=True), 1)
    ]
    with _cursor(where) as cursor:
        cursor.execute(_BATCH, (json.dumps(submissions),))
        return [UUID(str(row[0])) for row in cursor.fetchall()]


@contextmanager
def _cursor(where: Any) -> Iterator[Cursor]:
    if hasattr(where, "fetchone"):  # Django's cursor has it by __getattr__
        yield where
    else:
        with where.cursor() as cursor:
            yield cursor


def _values(message: Message, key: str | None, transport: str | None, job: str | None) -> tuple[Any, ...]:
    return (
        address_of(message.sender),
        message.recipients,
        compose(message),
        key,
        message.scheduled_at,
        message.priority,
        json.dumps(message.own_metadata),
        transport,
        job,
    )


def _text(message: Message, number: int) -> str:
    try:
        return compose(message).decode()
    except UnicodeDecodeError:
        raise ValueError(f"message {number}: raw is not UTF-8; allowed in a batch: text, others by send()") from None
