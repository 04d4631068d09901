"""daemon — builds smtpd's parts and owns their order

Owns: the start (database proven, schema checked, sockets bound, then ready) and the stop (accept nobody, let messages
    in transfer finish, commit what is in hand, close).
Called by: smtpd.__main__.
Guarantees: nothing half-started: if any step fails, nothing listens. After a stop, everything that got 250 is
    committed.
Raises: PillarboxError for what an operator can mend.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shared import database, events, lifecycle, migrate
from shared.spool import Spool
from smtpd.listener import Listeners

if TYPE_CHECKING:
    from shared.smtpd_config import SmtpdConfig

# Two connections: while one waits for its COMMIT to reach the disk, the other copies the next group.
_COMMITTERS = 2
_PATIENCE = 10.0  # seconds for messages in transfer when stopping


async def run(config: SmtpdConfig) -> None:
    """Serve until a signal comes."""
    settings = config.environment.database
    conninfo = database.resolve(settings.uri, config.environment.var)
    migrate.check(conninfo)
    spool = Spool(conninfo, config.spool, "pillarbox smtpd")
    await spool.prove()
    listeners = Listeners(config, spool)
    addresses = ", ".join(await listeners.open())
    events.emit(
        "daemon.started",
        role="smtpd",
        pid=os.getpid(),
        listening=addresses,
        synchronous_commit=config.spool.synchronous_commit,
    )

    async def stop() -> None:
        await listeners.close()
        listeners.stop_connections()
        await lifecycle.step(
            "sessions", listeners.emptied(), _PATIENCE, on=lambda: f"{len(listeners.connections)} connections"
        )
        await lifecycle.step("spool", spool.drained(), config.spool.timeout.total_seconds())

    parts = {f"spool-{number}": spool.run() for number in range(_COMMITTERS)}
    await lifecycle.serve(parts, f"listening {addresses}", stop)
