"""list_query — asks PostgreSQL whether a value is in a list

Owns: the small pool for policy's list queries, apart from the spool's connections.
Guarantees: a query runs read-only, its value is a bound parameter, and takes its time limit at most. The pool is opened
    at the first query and recovers by itself; until then, and while PostgreSQL is away, ListUnavailable.
Raises: ListUnavailable.
See: config/smtpd.yaml, `policy.lists[].query`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from shared.errors import PillarboxError
from shared.postgres import database
from shared.postgres.queries import query
from smtpd.policy.lists import ListUnavailable

if TYPE_CHECKING:
    from shared.postgres.database import Pool

_CONNECTIONS: Final = 2


class ListQueries:
    """Runs list queries on a pool of its own."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._pool: Pool | None = None
        self._opening = asyncio.Lock()

    async def __call__(self, text: str, value: str, seconds: float) -> bool:
        """Whether the query returns a row for this value; raises ListUnavailable."""
        try:
            async with asyncio.timeout(seconds):
                pool = await self._opened()
                async with pool.connection() as connection:
                    await connection.execute(query("list_begin"))
                    cursor = await connection.execute(text.encode(), {"value": value})
                    found = await cursor.fetchone() is not None
                    await connection.execute("COMMIT")
                    return found
        except TimeoutError:
            raise ListUnavailable(f"no answer within {seconds:g} s") from None
        except (*database.OUTAGE, *database.REFUSAL, PillarboxError) as error:
            raise ListUnavailable(database.reason(error)) from None

    async def close(self) -> None:
        """Close the pool."""
        if self._pool is not None:
            await self._pool.close()

    async def _opened(self) -> Pool:
        async with self._opening:
            if self._pool is None:
                self._pool = await database.open_pool(self._conninfo, "pillarbox smtpd lists", _CONNECTIONS)
            return self._pool
