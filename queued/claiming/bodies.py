"""bodies — holds the content of claimed messages, within a budget

Owns: fetching bodies for claimed recipients, the count of octets held, and putting recipients without a body on hold.
Guarantees: one body is held once for all its recipients in flight. Beyond the budget nothing is fetched until a body is
    released, so memory is bounded for any queue; one message larger than the whole budget is still let
    through alone. What is set aside (queued/in_flight.py) is not counted, which is a quarter more at most.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from queued.claiming.leaves import Leaves
from queued.values import Body, fence
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from queued.values import Claimed, Fence


class Bodies:
    """The budget, and the door to messages.content."""

    def __init__(self, pool: database.Pool, budget: int) -> None:
        self._pool = pool
        self._budget = budget
        self._held = 0
        self._leaves = Leaves()
        self._room = asyncio.Event()

    async def reserve(self, size: int, seconds: float) -> bool:
        """Wait for so long until `size` octets fit, and count them; whether they do."""
        until = asyncio.get_running_loop().time() + seconds
        try:
            while self._held and self._held + size > self._budget:
                self._room.clear()
                async with asyncio.timeout_at(until):
                    await self._room.wait()
        except TimeoutError:
            return False
        self._held += size
        return True

    def let_go(self, size: int) -> None:
        """The octets are no longer held."""
        self._held -= size
        self._room.set()

    async def fetch(self, ids: list[UUID]) -> Mapping[UUID, Body]:
        """The bodies there are; one that is missing is missing in the answer."""
        async with self._pool.connection() as connection:
            rows = await database.fetch_octets(connection, "message_bodies", ids=ids)
        return {row.id: Body(bytes(row.content), row.smtputf8) for row in rows}

    async def hold_missing(self, claimed: Sequence[Claimed]) -> set[Fence]:
        """Hold recipients whose body is gone, for a person to decide; those held now, each with its attempt.

        The others belong to other claims, or were put on hold meanwhile.
        """
        held: set[Fence] = set()
        async with self._pool.connection() as connection:
            for some in self._leaves.portions(claimed):
                partids = self._leaves.named(some)
                rows = await database.fetch(connection, "hold_missing_body", now=None, partids=partids, **fence(some))
                held |= {(row.id, row.token) for row in rows}
            if missed := [c for c in claimed if (c.id, c.token) not in held]:
                rows = await database.fetch(connection, "hold_missing_body", now=None, partids=None, **fence(missed))
                held |= {(row.id, row.token) for row in rows}
        return held
