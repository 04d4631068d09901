"""register — this worker's row in the register of workers

Owns: writing the row at the start, renewing it, and removing it when the worker stops claiming; with each renewal,
    writing which transports this worker has, and deleting from the table `unserved` the mail that its condition
    selects. After a reload it is renewed at once.
Guarantees: a worker that cannot reach the register goes on delivering: the register is for people and for
    `pillarbox doctor`, not for claims. A row that has not been renewed for five beats counts as gone.
See: sql/schema/13_register.sql; shared/postgres/presence.py, the register of all daemons; docs/reference/doctor.md.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from shared.observe import events
from shared.postgres import database
from shared.timed_wait import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shared.config.queued.settings import Claim as ClaimSettings
    from shared.postgres.presence import Identity

# A beat costs one small commit; more seldom, and a dead worker is taken for a live one too long.
_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(seconds=15)


def beat(poll: timedelta) -> timedelta:
    """How often a worker that polls this often renews its row."""
    return min(max(poll, _SHORTEST), _LONGEST)


class Register:
    """One worker's entry."""

    def __init__(
        self, pool: database.Pool, identity: Identity, where: str, settings: ClaimSettings, transports: Iterable[str]
    ) -> None:
        self._pool = pool
        self._identity = identity
        self._where = where
        self._settings = settings
        self._transports = list(transports)
        self._started: datetime | None = None
        self._left = False
        self._writing = asyncio.Lock()  # a beat under way when we leave must not put the row back
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Enter now and renew every beat, until cancelled."""
        every = beat(self._settings.poll)
        while True:
            self._news.clear()
            try:
                await self._renew_unless_left(every)
            except (*database.OUTAGE, *database.REFUSAL) as error:
                events.emit("register.failed", error=error, away=database.is_away(error))
            await wait_for_event(self._news, every.total_seconds())

    def know(self, transports: Iterable[str]) -> None:
        """From now on these are the transports that this worker has."""
        self._transports = list(transports)
        self._news.set()

    async def leave(self) -> None:
        """Take the row away; if PostgreSQL is away, five beats without news say the same."""
        self._left = True
        try:
            async with self._writing, self._pool.connection() as connection:
                await database.fetch(connection, "register_leave", worker=str(self._identity))
        except (*database.OUTAGE, *database.REFUSAL) as error:
            events.emit("register.failed", error=error, away=database.is_away(error))

    async def _renew_unless_left(self, every: timedelta) -> None:
        async with self._writing, self._pool.connection() as connection:
            if self._left:
                return
            await database.fetch(connection, "register_transports", transports=self._transports)
            [row] = await database.fetch(
                connection,
                "register_beat",
                worker=str(self._identity),
                id=self._identity.id,
                host=self._identity.host,
                pid=self._identity.pid,
                where_condition=self._where,
                started=self._started,
                beat=every,
                lease=self._settings.lease,
                poll=self._settings.poll,
                transports=self._transports,
            )
            self._started = row.started
            await database.fetch(connection, "register_serves", where=self._where)
