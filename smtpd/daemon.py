"""daemon — builds smtpd's parts and owns their order

Owns: the start (database proven, schema checked, ports bound, privileges dropped, then ready), reload and stop; whether
    this process serves itself or supervises others that do.
Guarantees: nothing half-started: if any step fails, nothing listens. After a stop, every message that got 250 is
    committed. A configuration that cannot be used changes nothing: it is read and proven whole first.
Raises: PillarboxError for errors that an operator can correct.
"""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from shared import event_loop, lifecycle, var_folder
from shared.config.smtpd.load import read_smtpd
from shared.config.validate import naming
from shared.errors import ListenFailed, error_text
from shared.observe import events, tracing
from shared.postgres import database, migrate
from smtpd import tls
from smtpd.connection import sockets
from smtpd.process import metrics as observe
from smtpd.process import privileges, rates_socket, reload
from smtpd.process.serve import Serving, patience
from smtpd.process.supervisor import Supervisor
from smtpd.rates.server import LocalRateCounts, RateServer

if TYPE_CHECKING:
    from pathlib import Path

    from shared.config.smtpd.settings import SmtpdConfig
    from smtpd.connection.sockets import Bound

type Values = dict[str, Any]


def run(path: Path) -> None:
    """Serve by the configuration in this file until a signal comes."""
    with naming(path):
        _run(path)


def _run(path: Path) -> None:
    config, values = read_smtpd(path)
    events.setup(config.environment.log.level)
    var_folder.check(config.environment.var)
    tls.refuse_ended(config.servers, datetime.now(UTC))
    account = privileges.identity(config.user, config.group)
    settings = config.environment.database
    conninfo = database.resolve(settings.uri, config.environment.var)
    migrate.check(conninfo)
    doors = sockets.bind(config)
    try:
        privileges.drop(account)
        daemon = Daemon(path, config, conninfo, doors)
        event_loop.run(daemon.alone() if len(doors) == 1 else daemon.supervised(values))
    finally:
        sockets.close(bound for process in doors for bound in process)


class Daemon:
    """smtpd as one service, with one process or several."""

    def __init__(self, path: Path, config: SmtpdConfig, conninfo: str, doors: list[list[Bound]]) -> None:
        self._path = path
        self._config = config
        self._conninfo = conninfo
        self._doors = doors
        self._served = tls.certificates_of(config.servers)

    async def alone(self) -> None:
        """Serve in this process."""
        counts = RateServer()
        serving = await self._proven(counts)
        await serving.open(self._doors[0])

        async def again() -> None:
            found = await self._usable()
            if found is None:
                return
            try:
                serving.reload(found[0])
            except Exception as error:  # noqa: BLE001 - a file that changed since, or a fault of ours: not worth the mail
                _refused(error)
                return
            events.setup(found[0].environment.log.level)
            events.emit("daemon.reloaded")

        tracing.setup(self._config.tracing, "smtpd", observe.ALONE)
        async with (
            rates_socket.answering(counts, self._config.environment.var),
            observe.observing(self._config.metrics, observe.Alone(serving), self._conninfo) as metrics,
        ):
            started = self._started(metrics)
            await lifecycle.serve(serving.parts(), self._ready(), serving.stop, again, started=started)
        await tracing.close()

    async def supervised(self, values: Values) -> None:
        """Serve by children."""
        await (await self._proven(RateServer())).listeners.release()
        counts = RateServer()
        supervisor = Supervisor(
            values, self._conninfo, self._doors, counts, counting=self._config.metrics.timeout.total_seconds()
        )
        await supervisor.open()

        async def again() -> None:
            found = await self._usable()
            if found is None:
                return
            refusals = await supervisor.reload(found[1])
            events.setup(found[0].environment.log.level)
            if refusals:
                events.emit("daemon.reload_refused", error="; ".join(refusals))
            else:
                events.emit("daemon.reloaded")

        async def stop() -> None:
            await supervisor.stop(patience(self._config))

        try:
            async with (
                rates_socket.answering(counts, self._config.environment.var),
                observe.observing(self._config.metrics, supervisor.reports, self._conninfo) as metrics,
            ):
                started = self._started(metrics)
                await lifecycle.serve(supervisor.parts(), self._ready(), stop, again, started=started)
        except ListenFailed:
            await supervisor.stop(0)
            raise

    async def _proven(self, counts: RateServer) -> Serving:
        """All parts of a process, once the database has answered: that is better than 451 for every client later."""
        serving = Serving(self._config, self._conninfo, LocalRateCounts(counts))
        await serving.spool.prove()
        return serving

    async def _usable(self) -> tuple[SmtpdConfig, Values] | None:
        """The file as it now is, proven usable as a whole; None, and an event, when it is not."""
        try:
            wanted, values = await asyncio.to_thread(read_smtpd, self._path)  # mail is accepted meanwhile
            config, ignored = reload.effective(self._config, wanted)
            self._served = tls.refuse_ended(config.servers, datetime.now(UTC), self._served)
            await Serving(config, self._conninfo, LocalRateCounts(RateServer())).listeners.release()
        except Exception as error:  # noqa: BLE001 - after any error the running configuration stays
            _refused(error)
            return None
        if ignored:
            events.emit("daemon.reload_ignored", keys=", ".join(ignored))
        return config, values

    def _ready(self) -> str:
        return f"listening {sockets.addresses(self._doors[0])}"

    def _started(self, metrics: str | None) -> dict[str, object]:
        return {
            "role": "smtpd",
            "pid": os.getpid(),
            "processes": len(self._doors),
            "listening": sockets.addresses(self._doors[0]),
            "synchronous_commit": self._config.spool.synchronous_commit,
            "metrics": metrics,
        }


def _refused(error: Exception) -> None:
    events.emit("daemon.reload_refused", error=error_text(error))
