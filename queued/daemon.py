"""daemon — builds a worker's parts and owns their order

Owns: the start (database proven, schema and condition checked, then ready) and the stop: claim nothing more, give back
    what is not begun, let attempts finish, record every result, close.
Called by: queued.__main__.
Guarantees: nothing half-started. After a bounded stop whatever is still in flight is said in the log; its lease gives
    it back.
Raises: PillarboxError for what an operator can mend.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from queued import maintain, observe, schedule
from queued.bodies import Bodies
from queued.claim import Claimer
from queued.deliver import Transport
from queued.dispatch import Dispatcher
from queued.register import Identity, Register
from queued.resolver import Resolver
from queued.result import Recorder
from queued.sign import Signer
from shared import database, events, lifecycle, migrate, wakeup
from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.queued_config import QueuedConfig

# One connection each for claiming, fetching bodies, recording, maintaining, recurring mail, and the register.
_CONNECTIONS = 6
_OBSERVING = 1  # connection more where metrics are on, so that who asks takes none of those
_ENDING = 5.0  # seconds for attempts to end once no connection is left
_RECORDING = 10.0  # seconds the last results may take when stopping
_LEAVING = 2.0  # seconds for taking ourselves off the register


async def run(config: QueuedConfig, worker: str, where: str, source: str) -> None:
    """Deliver until a signal comes. `source` says where the condition `where` stands, for whoever has to mend it."""
    signer = Signer(config.signing)  # before a server of our own is started: a key that cannot be read ends it here
    conninfo = database.resolve(config.environment.database.uri, config.environment.var)
    migrate.check(conninfo)
    name = f"pillarbox {worker}"
    observed = _OBSERVING if config.metrics.listen else 0
    pool = await database.open_pool(conninfo, name, _CONNECTIONS + observed)
    try:
        await _check_where(pool, where, source)
        await _serve(config, worker, where, conninfo, pool, signer)
    finally:
        await pool.close()


async def _serve(
    config: QueuedConfig, worker: str, where: str, conninfo: str, pool: database.Pool, signer: Signer
) -> None:
    who = Identity(worker, socket.gethostname(), os.getpid())
    identity = str(who)
    register = Register(pool, who, where, config.claim)
    resolver, ours = Resolver(config.routing.dns), config.routing.ourselves
    transports = {t.id: Transport(t, socket.getfqdn(), resolver, ours) for t in config.transports}
    recorder = Recorder(pool, identity, config.maintenance.ahead)
    dispatcher = Dispatcher(
        pool,
        Claimer(where, identity, config.claim),
        Bodies(pool, config.claim.maxbytes),
        transports,
        recorder,
        config.claim,
        signer,
    )

    async def stop() -> None:
        dispatcher.stop()
        await lifecycle.step("register", register.leave(), _LEAVING, on=lambda: "PostgreSQL")
        patience = config.shutdown.timeout.total_seconds()
        # Closing turns away whoever still waits for DNS or a connection, so that it goes back now and not with its
        # lease. What is being said is heard out; when patience ends, the connections are cut and the attempts end with
        # them.
        closing = asyncio.gather(resolver.close(), *(transport.close() for transport in transports.values()))
        await lifecycle.step("connections", closing, patience, on=lambda: f"{dispatcher.inflight} recipients")
        await lifecycle.step("attempts", dispatcher.drained(), _ENDING, on=lambda: f"{dispatcher.inflight} recipients")
        await lifecycle.step("results", recorder.drained(), _RECORDING, on=lambda: f"{recorder.unrecorded} results")
        left = dispatcher.inflight
        if left:
            events.emit("daemon.waiting", step="lease", on=f"{left} recipients left to their lease")

    async with observe.observing(config, worker, where, pool, dispatcher, recorder) as metrics:
        listening = {}
        if config.wakeup.mode == "listen":
            direct = config.wakeup.uri
            listening["wakeup"] = wakeup.listen(
                database.resolve(direct, config.environment.var, "wakeup.uri") if direct else conninfo,
                f"pillarbox {worker} wakeup",
                where,
                dispatcher.due,
                missed=dispatcher.start_over,
                pool=pool,
                probe=config.wakeup.probe.total_seconds(),
            )
        events.emit("daemon.started", role="queued", pid=os.getpid(), worker=worker, where=where, metrics=metrics)
        await lifecycle.serve(
            {
                **listening,
                "recorder": recorder.run(),
                "dispatcher": dispatcher.run(),
                "heartbeat": dispatcher.heartbeat(),
                "register": register.run(),
                "maintain": maintain.run(pool, identity, config.maintenance),
                "schedule": schedule.run(pool),
            },
            f"worker {worker} where {where}",
            stop,
        )


async def _check_where(pool: database.Pool, where: str, source: str) -> None:
    """Let PostgreSQL itself read the condition before anything is claimed with it."""
    try:
        async with pool.connection() as connection:
            await database.fetch(connection, "claim_probe", where=where)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    except database.REFUSAL as error:
        reason = error.diag.message_primary or error
        raise ConfigError(
            f"{source}: {where!r}: {reason}; allowed: one SQL condition on the columns of queue"
        ) from None
