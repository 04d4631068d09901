"""notifier — notifies workers that mail is due, after COMMIT and apart from the path of mail

Owns: one connection that is used for NOTIFY alone, and the hints that wait for it.
Guarantees: nothing waits for it. A hint goes out at once when the connection is idle; while one statement is under
    way the next hints gather, each once. A hint that cannot be sent is counted and logged and affects no mail and no
    result: a lost hint only delays, because workers poll and `deadletters watch` reads the archive. The number of
    waiting hints is bounded.
See: sql/schema/01_setting.sql, notify_partition; docs/explanation/wake-up.md; PostgreSQL manual, NOTIFY.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final

from shared.errors import DatabaseUnavailable, in_words
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Iterable

_PATIENCE: Final = 5.0  # seconds for a connection, and for a statement; a busy server takes milliseconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds; after a poll interval the hint is not needed any more
_MOST: Final = 10_000  # of each kind that wait
_AT_ONCE: Final = 1000


class Notifier:
    """A notification to send, and its sender."""

    def __init__(self, conninfo: str, application_name: str) -> None:
        self._conninfo = conninfo
        self._application_name = application_name
        self._partids: dict[str, None] = {}  # sets that keep their order
        self._dead: dict[int, None] = {}
        self._arrived = asyncio.Event()
        self._said = asyncio.Event()
        self._said.set()

    def wake(self, partids: Iterable[str]) -> None:
        """Mail of these partitions was committed."""
        self._gather(self._partids, dict.fromkeys(partids))

    def announce(self, ids: Iterable[int]) -> None:
        """These recipients became dead letters, and are in the archive by these ids."""
        self._gather(self._dead, dict.fromkeys(ids))

    async def drained(self) -> None:
        """Return when nothing waits to be said."""
        await self._said.wait()

    async def run(self) -> None:
        """Say what there is to say, until cancelled."""
        connection: database.Connection | None = None
        pause = _FIRST_PAUSE
        try:
            while True:
                await self._arrived.wait()
                try:
                    async with asyncio.timeout(_PATIENCE):
                        if connection is not None and not database.is_usable(connection):
                            await connection.close()
                        if connection is None or connection.closed:
                            connection = await database.connect(self._conninfo, self._application_name)
                        await self._say(connection)
                    pause = _FIRST_PAUSE
                except (DatabaseUnavailable, *database.OUTAGE, *database.REFUSAL) as error:
                    hints, away = len(self._partids) + len(self._dead), database.is_away(error)
                    events.emit("wakeup.unsent", hints=hints, error=in_words(error), away=away)
                    if connection is not None:
                        await connection.close()
                        connection = None
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            if connection is not None:
                await connection.close()

    def _gather[Hint](self, waiting: dict[Hint, None], more: dict[Hint, None]) -> None:
        waiting.update(more)
        if len(waiting) > _MOST:
            events.emit("wakeup.unsent", hints=len(waiting) - _MOST, error="too many wait")
            for hint in list(islice(waiting, len(waiting) - _MOST)):
                del waiting[hint]
        if waiting:
            self._arrived.set()
            self._said.clear()

    async def _say(self, connection: database.Connection) -> None:
        """All that waits, in portions; what the server takes is forgotten, and what it leaves out is counted."""
        while self._partids or self._dead:
            partids, dead = list(islice(self._partids, _AT_ONCE)), list(islice(self._dead, _AT_ONCE))
            self._arrived.clear()
            # Forgotten before they are sent: what comes meanwhile may be newer than what the statement tells.
            for partid in partids:
                del self._partids[partid]
            for id_ in dead:
                del self._dead[id_]
            try:
                rows = await database.fetch(connection, "wakeup_notify", partids=partids) if partids else []
                rows += await database.fetch(connection, "deadletters_announce", ids=dead) if dead else []
            except BaseException:
                self._partids = dict.fromkeys(partids) | self._partids
                self._dead = dict.fromkeys(dead) | self._dead
                self._arrived.set()
                raise
            if left := sum(not row.sent for row in rows):
                events.emit("wakeup.unsent", hints=left, error="PostgreSQL's queue of notifications is half full")
        self._arrived.clear()
        self._said.set()
