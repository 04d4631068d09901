"""content — a held message exactly as it was submitted, piece by piece

Guarantees: reads only. A large message is never held as a whole, and no transaction is open between two pieces.
Raises: Refused and its kinds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.errors import NotThere
from operate.quarantine.access import narrowed
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from operate.quarantine.access import Access

PIECE: Final = 2**20  # octets


async def held(connection: database.Connection, access: Access, id_: str) -> UUID:
    """The message of a held recipient, by its number or the message's own id."""
    asking = (await narrowed(connection, access, "export", [id_])).asking
    rows = await asking.fetch(connection, "quarantine_mail", after=0, limit=1, most=0)
    if not rows:
        raise NotThere(f"quarantine export: {id_} is not held any more")
    found: UUID = rows[0].message
    return found


async def piece(connection: database.Connection, message: UUID, start: int) -> bytes | None:
    """The octets from this one on, which begin at 1; fewer than PIECE at the end. None: the message has no body."""
    rows = await database.fetch(connection, "quarantine_piece", message=message, start=start, most=PIECE)
    return bytes(rows[0].piece) if rows else None


async def pieces(
    message: UUID, first: bytes, connected: Callable[[], AbstractAsyncContextManager[database.Connection]]
) -> AsyncIterator[bytes]:
    """The whole message after its first piece was read: a connection for each further one: the reader may be slow."""
    more, start = first, 1
    yield more
    while len(more) == PIECE:
        start += PIECE
        async with connected() as connection:
            following = await piece(connection, message, start)
        if following is None:
            raise NotThere(f"quarantine export: message {message} went away while it was read")
        more = following
        yield more
