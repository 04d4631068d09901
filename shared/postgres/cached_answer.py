"""cached_answer — the latest answer to a query, asked seldom and waited for briefly

Owns: Latest, one query with its last answer.
Guarantees: for any number of callers PostgreSQL is asked once at a time and not again before the answer is `fresh`
    seconds old. No caller waits longer than `patience` seconds: a query that hangs goes on by itself until its
    connection fails, and until then there is no answer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_LEAVING = 1.0  # seconds for a question under way to end


class Latest[Answer]:
    """One question. `ask` is given a connection of the pool and may raise what PostgreSQL's trouble raises."""

    def __init__(
        self,
        pool: database.Pool,
        ask: Callable[[database.Connection], Awaitable[Answer]],
        *,
        fresh: float,
        patience: float,
    ) -> None:
        self._pool = pool
        self._ask = ask
        self._fresh = fresh
        self._patience = patience
        self._asking: asyncio.Task[None] | None = None
        self._asked = float("-inf")
        self._answer: Answer | None = None

    async def answer(self) -> Answer | None:
        """The answer, `fresh` seconds old at most; None when PostgreSQL gives none."""
        if self._asking is None and monotonic() - self._asked >= self._fresh:
            self._asking = asyncio.create_task(self._put())
        if self._asking is not None:
            done, _ = await asyncio.wait({self._asking}, timeout=self._patience)
            if not done:
                return None
            for each in done:
                each.result()  # a fault of ours is not PostgreSQL's silence
        return self._answer

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking}, timeout=_LEAVING)

    async def _put(self) -> None:
        self._answer = None
        try:
            with suppress(*database.OUTAGE, *database.REFUSAL):
                async with self._pool.connection() as connection:
                    self._answer = await self._ask(connection)
        finally:
            self._asked = monotonic()
            self._asking = None
