"""acting — a connection each of whose transactions acts for a principal

Owns: saying pillarbox.act_as at the beginning of each transaction; who the principal of a command is.
Guarantees: no statement runs before it is said: one outside a transaction gets a transaction of its own, as autocommit
    would give it. The transaction's end ends it, so that the connection carries nothing over.
See: sql/README.md, "On whose behalf"; docs/how-to/rights/say-on-whose-behalf.md.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class ActingCursor(psycopg.AsyncCursor[Any]):
    """A cursor whose statements act for the principal of its connection."""

    async def execute(self, query: Any, params: Any = None, **how: Any) -> ActingCursor:
        """As in psycopg."""
        connection = self.connection
        if isinstance(connection, ActingConnection) and connection.principal is not None and _is_idle(connection):
            async with connection.transaction():
                return await super().execute(query, params, **how)
        return await super().execute(query, params, **how)


class ActingConnection(psycopg.AsyncConnection[TupleRow]):
    """A connection in autocommit that acts for `principal`; None: for its login."""

    principal: str | None = None
    seconds: float | None = None  # the longest a statement may take

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.cursor_factory = ActingCursor

    @asynccontextmanager
    async def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,  # noqa: FBT001, FBT002 - psycopg's own signature
    ) -> AsyncIterator[psycopg.AsyncTransaction]:
        """As in psycopg."""
        outermost = _is_idle(self)
        async with super().transaction(savepoint_name, force_rollback=force_rollback) as begun:
            if outermost and self.principal is not None:
                milliseconds = None if self.seconds is None else str(round(self.seconds * 1000))
                await database.fetch(self, "act_as", principal=self.principal, milliseconds=milliseconds)
            yield begun


async def connect(conninfo: str, application_name: str) -> ActingConnection:
    """One connection in autocommit that acts for its login as yet; DatabaseUnavailable when there is none to be had."""
    return cast("ActingConnection", await database.connect(conninfo, application_name, ActingConnection))


async def open_pool(conninfo: str, application_name: str, size: int) -> database.Pool:
    """A pool of such connections."""
    return await database.open_pool(conninfo, application_name, size, ActingConnection)


@asynccontextmanager
async def borrowed(
    pool: database.Pool, principal: str | None, seconds: float | None = None
) -> AsyncIterator[database.Connection]:
    """A connection of such a pool that acts for `principal` as long as the block lasts.

    seconds: the longest a statement may take; then PostgreSQL cancels it.
    """
    async with pool.connection() as connection:
        lent = cast("ActingConnection", connection)
        lent.principal, lent.seconds = principal, seconds
        try:
            yield lent
        finally:
            lent.principal = lent.seconds = None


def principal_of(connection: database.Connection) -> str | None:
    """For whom this connection acts; None: for its login."""
    return connection.principal if isinstance(connection, ActingConnection) else None


async def find_principal(connection: database.Connection, user: str) -> str | None:
    """`user` if that is the name of a principal, and this login may act for others; else None."""
    [row] = await database.fetch(connection, "act_as_allowed")
    if not row.allowed:
        return None
    [row] = await database.fetch(connection, "principal_known", principal=user)
    return user if row.known else None


def _is_idle(connection: psycopg.AsyncConnection[Any]) -> bool:
    return connection.info.transaction_status == TransactionStatus.IDLE
