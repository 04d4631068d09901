"""daemon — builds httpd's parts and owns their order

Owns: the start (database proven, schema checked, port bound, privileges dropped, then ready), reload and stop: accept
    no more, let requests end, close; whether this process serves itself or supervises others that do.
Guarantees: nothing half-started: if any step fails, nothing listens. A configuration that cannot be used changes
    nothing: it is read and proven whole first.
Raises: PillarboxError for errors that an operator can correct.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from httpd import reload
from httpd.process import metrics
from httpd.process.counts import Counting
from httpd.process.serving import Serving
from httpd.sending.rates import SharedCounts
from httpd.sending.receiver import Receiver, rules_of
from httpd.server import door
from httpd.server.certificate import Certificate
from httpd.tally import Tally
from shared import event_loop, lifecycle, var_folder
from shared.config.httpd.load import read_httpd
from shared.config.validate import naming
from shared.errors import ListenFailed, error_text
from shared.observe import events
from shared.observe.httpd_table import HTTPD
from shared.postgres import database, migrate
from smtpd.connection import sockets
from smtpd.process import privileges
from smtpd.process.supervisor import Program, Supervisor
from smtpd.rates.server import LocalRateCounts, RateServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from shared.config.httpd.settings import HttpdConfig
    from shared.config.smtpd.settings import SmtpdConfig
    from smtpd.connection.sockets import Bound

type Values = dict[str, Any]

_COUNTING: Final = 1.0  # seconds that a page of metrics waits for what the processes have counted


def run(path: Path) -> None:
    """Serve by the configuration in this file until a signal comes."""
    with naming(path):
        _run(path)


def _run(path: Path) -> None:
    config, values = read_httpd(path)
    events.setup(config.environment.log.level)
    var_folder.check(config.environment.var)
    certificate = Certificate(config.tls) if config.tls else None
    account = privileges.identity(config.user, config.group)
    conninfo = database.resolve(config.environment.database.uri, config.environment.var)
    migrate.check(conninfo)
    doors = door.bind(config.listen, config.processes)
    try:
        privileges.drop(account, "httpd.yaml")
        daemon = _Daemon(path, config, conninfo, doors, certificate)
        event_loop.run(daemon.alone() if len(doors) == 1 else daemon.supervised(values))
    finally:
        sockets.close(bound for process in doors for bound in process)


class _Daemon:
    """httpd as one service, with one process or several."""

    def __init__(
        self,
        path: Path,
        config: HttpdConfig,
        conninfo: str,
        doors: list[list[Bound]],
        certificate: Certificate | None,
    ) -> None:
        self._path = path
        self._config = config
        self._conninfo = conninfo
        self._doors = doors
        self._certificate = certificate
        self._where = door.address(doors[0][0].door)
        self._mail = SharedCounts(rules_of(path, config).environment.var)

    async def alone(self) -> None:
        """Answer in this process."""
        keys = LocalRateCounts(RateServer())
        serving = await Serving.made(
            self._path, self._config, self._conninfo, Tally(), keys, self._mail, self._certificate
        )

        async def again() -> None:
            if await self._reloaded(serving.use) is not None:
                events.emit("daemon.reloaded")

        figures = metrics.Alone(serving)
        try:
            await serving.open(self._doors[0][0].door)
            async with metrics.observing(self._config.metrics, figures) as address:
                parts = {**serving.parts(), "rates": self._mail.run()}
                await lifecycle.serve(parts, self._ready(), serving.stop, again, started=self._started(address))
        finally:
            await figures.close()
            await serving.close()

    async def supervised(self, values: Values) -> None:
        """Answer by children."""
        config = self._config
        tally, file = Tally.shared(config.processes)
        more = {"path": str(self._path), "tally": file}
        async with self._proving() as prover:
            await prover.spool.prove()
            supervisor = Supervisor(
                values, self._conninfo, self._doors, Counting(self._mail, tally),
                program=Program("httpd", HTTPD, more, [file]), counting=_COUNTING,
            )  # fmt: skip
            counting = asyncio.ensure_future(self._mail.run())
            try:
                await supervisor.open()

                async def prove(config: HttpdConfig) -> SmtpdConfig:
                    if self._certificate is not None and config.tls is not None:
                        self._certificate.reload(config.tls)
                    return await prover.use(config)

                async def again() -> None:
                    values = await self._reloaded(prove)
                    if values is None:
                        return
                    if refusals := await supervisor.reload(values):
                        events.emit("daemon.reload_refused", error="; ".join(refusals))
                    else:
                        events.emit("daemon.reloaded")

                async def stop() -> None:
                    # A child waits so long for requests, and then for changes; supervisor.stop adds its own patience.
                    requests = 2 * self._config.shutdown.timeout.total_seconds()
                    await supervisor.stop(requests + prover.patience)

                try:
                    async with metrics.observing(config.metrics, supervisor.reports) as address:
                        started = self._started(address)
                        await lifecycle.serve(supervisor.parts(), self._ready(), stop, again, started=started)
                except ListenFailed:
                    await supervisor.stop(0)
                    raise
            finally:
                counting.cancel()
                await asyncio.gather(counting, return_exceptions=True)
                os.close(file)

    @asynccontextmanager
    async def _proving(self) -> AsyncIterator[Receiver]:
        """What a child takes mail with, to prove that it can be made."""
        receiver = Receiver(self._config, self._path, self._conninfo, LocalRateCounts(RateServer()))
        try:
            yield receiver
        finally:
            await receiver.close()

    async def _reloaded(self, use: Callable[[HttpdConfig], Awaitable[SmtpdConfig]]) -> Values | None:
        """Go on by the file as it is now, once `use` could; its values, or None where the running one stays."""
        try:
            wanted, values = await asyncio.to_thread(read_httpd, self._path)
            config, ignored = reload.effective(self._config, wanted)
            rules = await use(config)
        except Exception as error:  # noqa: BLE001 - after any error the running configuration stays
            events.emit("daemon.reload_refused", error=error_text(error))
            return None
        if ignored:
            events.emit("daemon.reload_ignored", keys=", ".join(ignored))
        self._config, self._mail.var = config, rules.environment.var
        events.setup(config.environment.log.level)
        return values

    def _ready(self) -> str:
        return f"listening {self._where}"

    def _started(self, address: str | None) -> dict[str, object]:
        scheme = "https" if self._config.tls else "http"
        return {
            "role": "httpd",
            "pid": os.getpid(),
            "processes": len(self._doors),
            "listening": f"{scheme}://{self._where}",
            "metrics": address,
        }
