"""wakeup — LISTEN, as a hint

Owns: one listening connection per process, and setting an event when mail for this worker may have arrived.
Called by: queued.daemon.
Guarantees: a lost notification costs at most one poll interval, for polling is the truth. After every (re)connection
    the event is set, because whatever was notified before LISTEN took hold is unknown. Only the partition id travels.
Raises: nothing; an outage is logged as wakeup.lost and tried again with growing, jittered pauses.
See: PostgreSQL manual, LISTEN; sql/queries/wakeup_concerns.sql.
"""

from __future__ import annotations

import asyncio
import random

from shared import database, events
from shared.errors import DatabaseUnavailable

CHANNEL = "pillarbox"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 15.0


async def listen(conninfo: str, application_name: str, where: str, due: asyncio.Event) -> None:
    """Set `due` whenever a notification may concern rows that `where` selects. Runs until cancelled."""
    pause = _FIRST_PAUSE
    while True:
        try:
            connection = await database.connect(conninfo, application_name)
            try:
                await connection.execute("LISTEN pillarbox")
                events.emit("wakeup.listening")
                due.set()
                pause = _FIRST_PAUSE
                await _forward(connection, where, due)
            finally:
                await connection.close()
        except (*database.OUTAGE, DatabaseUnavailable) as error:
            wait = pause * random.uniform(0.5, 1.5)
            events.emit("wakeup.lost", error=error, seconds=wait)
            await asyncio.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE)


async def _forward(connection: database.Connection, where: str, due: asyncio.Event) -> None:
    """Until the connection ends: notifications whose partition the condition may select set the event.

    What PostgreSQL says of a partition id is remembered: a worker hears of few ids, and the answer depends on nothing
    else.
    """
    concerns: dict[str, bool] = {}
    while True:
        # Notifications are gathered first: the connection cannot run a query while it listens.
        heard = {n.payload async for n in connection.notifies(timeout=None, stop_after=1)}
        heard |= {n.payload async for n in connection.notifies(timeout=0)}
        for partid in heard - concerns.keys():
            [row] = await database.fetch(connection, "wakeup_concerns", where=where, partid=partid)
            concerns[partid] = row[0]
        if any(concerns[partid] for partid in heard):
            due.set()
        if len(concerns) > _MOST_REMEMBERED:
            concerns.clear()


_MOST_REMEMBERED = 10_000
