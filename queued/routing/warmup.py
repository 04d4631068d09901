"""warmup — counts the messages of source addresses against their allowance for the day

Owns: this worker's portions of the allowances of sources under warm-up, and asking PostgreSQL for more.
Guarantees: all workers together never send more than the allowance: each takes portions of it, which PostgreSQL grants,
    and counts exactly within them. A portion is a fiftieth of the allowance, so that is the most that a worker which
    ends leaves unused that day. While PostgreSQL is away and grants nothing, mail waits.
Raises: nothing.
See: sql/queries/delivery/pacing.sql, warmup_take; sql/README.md, "Crash table"; queued/routing/source.py for how much a
    day allows
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from datetime import date

_PORTIONS: Final = 50

type _Key = tuple[str, date]


class Warmups:
    """The day's allowances of a worker. Without a pool they are counted here alone."""

    def __init__(self, pool: database.Pool | None = None) -> None:
        """`pool`: where all workers count together."""
        self._pool = pool
        self._left: dict[_Key, int] = {}
        self._used_up: set[tuple[str, date, int]] = set()
        self._asking = asyncio.Lock()

    def share(self, pool: database.Pool) -> None:
        """From now on all workers count together."""
        self._pool = pool

    async def refill(self, source: str, day: date, most: int) -> bool:
        """Have some of the day's `most` messages of this address in flight, if any are left; False: unknown."""
        if self._settled(source, day, most):
            return True
        async with self._asking:
            return self._settled(source, day, most) or await self._ask(source, day, most)

    def take(self, source: str, day: date) -> bool:
        """Whether one more message may leave from this address on this day; then it is counted."""
        left = self._left.get((source, day), 0)
        if left:
            self._left[source, day] = left - 1
        return left > 0

    def at_hand(self, source: str, day: date) -> bool:
        """Whether `take` would say yes."""
        return self._left.get((source, day), 0) > 0

    def used_up(self, source: str, day: date, most: int) -> bool:
        """Whether nothing is left of the day's `most` messages."""
        return not self.at_hand(source, day) and (most <= 0 or (source, day, most) in self._used_up)

    def give_back(self, source: str, day: date) -> None:
        """The message did not leave after all."""
        self._left[source, day] = self._left.get((source, day), 0) + 1

    def _settled(self, source: str, day: date, most: int) -> bool:
        return self.at_hand(source, day) or self.used_up(source, day, most)

    async def _ask(self, source: str, day: date, most: int) -> bool:
        granted = most if (source, day) not in self._left else 0
        if self._pool is not None:
            try:
                async with self._pool.connection() as connection:
                    rows = await database.fetch(
                        connection, "warmup_take", source=source, day=day, portion=-(-most // _PORTIONS), most=most
                    )
            except (*database.OUTAGE, *database.REFUSAL) as error:
                events.emit("warmup.unanswered", source=source, error=error, away=database.is_away(error))
                return False
            granted = rows[0].granted if rows else 0
        self._forget(day)
        self._left[source, day] = self._left.get((source, day), 0) + granted
        if not granted:
            self._used_up.add((source, day, most))
            events.emit("warmup.used_up", source=source, day=day, messages=most)
        return True

    def _forget(self, today: date) -> None:
        """Other days than this one and its neighbours; attempts around midnight may still speak of those."""
        self._left = {key: left for key, left in self._left.items() if abs((key[1] - today).days) <= 1}
        self._used_up = {key for key in self._used_up if abs((key[1] - today).days) <= 1}
