"""wake — LISTEN on the channel of new tokens, as a hint

Guarantees: the event is set for each notification, and after each (re)connection, because what was notified before is
    unknown. A lost notification costs at most one poll interval.
Raises: nothing; an outage is logged as wakeup.lost and tried again with growing, jittered pauses.
See: shared/postgres/wakeup.py, which does the same for partitions of the queue.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from shared.errors import DatabaseUnavailable
from shared.observe import events
from shared.postgres import database
from shared.postgres.queries import filled_query

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 15.0
_OPENING = 15.0  # seconds for a connection and its LISTEN


async def listen(conninfo: str, channel: str, due: asyncio.Event, missed: Callable[[], None]) -> None:
    """Set `due` at each notification, and call `missed` after each connection. Runs until cancelled."""
    pause = _FIRST_PAUSE
    while True:
        connection: database.Connection | None = None
        try:
            async with asyncio.timeout(_OPENING):
                connection = await database.connect(conninfo, "pillarbox collect wakeup")
                await connection.execute(filled_query("collect_listen", channel=quoted(channel)))
            events.emit("wakeup.listening")
            pause = _FIRST_PAUSE
            missed()
            due.set()
            async for _ in connection.notifies():
                due.set()
        except (*database.OUTAGE, *database.REFUSAL, DatabaseUnavailable) as error:
            wait = pause * random.uniform(0.5, 1.5)
            pause = min(2 * pause, _LONGEST_PAUSE)
            events.emit("wakeup.lost", error=error, seconds=wait, away=database.is_away(error))
            await asyncio.sleep(wait)
        finally:
            if connection is not None:
                await connection.close()


def quoted(channel: str) -> str:
    """The name of a channel as SQL has it."""
    return '"' + channel.replace('"', '""') + '"'
