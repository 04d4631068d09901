"""keep_postgres — starts the embedded PostgreSQL again when it dies

Guarantees: it is looked for every second. Its first death is answered at once; one that dies soon after its start waits
    longer each time, and after the last of _PAUSES it is left alone. Each death and each start is an event.
Raises: DatabaseUnavailable when it died too often in a row.
See: shared/postgres/embedded/embedded.py. The daemons wait for it and reconnect by themselves.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final

from shared.errors import DatabaseUnavailable
from shared.how_many import how_many
from shared.observe import events
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "postgresql"
_LOOK: Final = 1.0  # seconds between two looks; each reads two small files
_STEADY: Final = 60.0  # seconds up after which the next death is a first one again
_PAUSES: Final = (0.0, 1.0, 5.0, 15.0, 30.0)  # seconds before each start in a row


async def keep_up(var: Path) -> None:
    """Keep the server under `var` running until cancelled."""
    running, error = embedded.status(var), None
    pid = running.pid if running else None
    since, deaths = monotonic(), 0
    while True:
        await asyncio.sleep(_LOOK)
        if running := embedded.status(var):
            pid = running.pid
            continue
        deaths = deaths + 1 if deaths and monotonic() - since < _STEADY else 1
        if deaths > len(_PAUSES):
            why = error or f"its log {var / 'postgres.log'} says why"
            raise DatabaseUnavailable(f"the embedded PostgreSQL died {how_many(deaths, 'time')} in a row: {why}")
        pause = _PAUSES[deaths - 1]
        events.emit("child.died", name=NAME, pid=pid, error=error, seconds=pause)
        await asyncio.sleep(pause)
        pid, error = None, await _start(var)
        since = monotonic()


async def _start(var: Path) -> DatabaseUnavailable | None:
    """Start it, recovery included; why that failed."""
    began = monotonic()
    try:
        await asyncio.to_thread(embedded.ensure_running, var)
    except DatabaseUnavailable as error:
        return error
    running = embedded.status(var)
    events.emit("child.started", name=NAME, pid=running and running.pid, seconds=monotonic() - began)
    return None
