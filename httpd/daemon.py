"""daemon — builds httpd's parts and owns their order

Owns: the start (database proven, schema checked, port bound, privileges dropped, then ready), reload and stop: accept
    no more, let requests end, close.
Guarantees: nothing half-started: if any step fails, nothing listens. A configuration that cannot be used changes
    nothing: it is read and proven whole first.
Raises: PillarboxError for errors that an operator can correct.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from httpd import app, metrics, reload
from httpd.sending.receiver import Receiver
from httpd.server import door
from httpd.server.certificate import Certificate
from httpd.server.serving import Server
from httpd.service import Service
from shared import event_loop, lifecycle, var_folder
from shared.config.httpd.load import load_httpd
from shared.config.validate import naming
from shared.errors import told
from shared.how_many import how_many
from shared.observe import events
from shared.postgres import acting, database, migrate
from smtpd.process import privileges

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from shared.config.httpd.settings import HttpdConfig


def run(path: Path) -> None:
    """Serve by the configuration in this file until a signal comes."""
    with naming(path):
        _run(path)


def _run(path: Path) -> None:
    config = load_httpd(path)
    events.setup(config.environment.log.level)
    var_folder.check(config.environment.var)
    certificate = Certificate(config.tls) if config.tls else None
    account = privileges.identity(config.user, config.group)
    conninfo = database.resolve(config.environment.database.uri, config.environment.var)
    migrate.check(conninfo)
    listening = door.bind(config.listen)
    try:
        privileges.drop(account, "httpd.yaml")
        event_loop.run(_Daemon(path, config, certificate, listening).serve(conninfo))
    finally:
        listening.close()


class _Daemon:
    """The parts of httpd while it runs."""

    def __init__(
        self, path: Path, config: HttpdConfig, certificate: Certificate | None, listening: socket.socket
    ) -> None:
        self._path = path
        self._config = config
        self._certificate = certificate
        self._listening = listening

    async def serve(self, conninfo: str) -> None:
        """Run every part until a signal comes."""
        config = self._config
        pool = await acting.open_pool(conninfo, "pillarbox httpd", config.environment.database.connections)
        try:
            receiver = Receiver(config, self._path, conninfo)
            await receiver.spool.prove()
            service = Service(config, pool, receiver, self._path.parent)
            server = Server(app.made(service), config, self._certificate)
            await server.open(self._listening)
            self._service, self._server = service, server
            async with metrics.observing(config.metrics, service, server) as address:
                where = door.address(self._listening)
                scheme = "https" if config.tls else "http"
                started = {
                    "role": "httpd",
                    "pid": os.getpid(),
                    "listening": f"{scheme}://{where}",
                    "metrics": address,
                }
                parts = {
                    "requests": server.run(),
                    "keys": service.keys.run(),
                    "live": service.live.run(),
                    **receiver.parts(),
                }
                await lifecycle.serve(parts, f"listening {where}", self._stop, self._reload, started=started)
        finally:
            await pool.close()

    async def _reload(self) -> None:
        """Use the configuration as it is now, or go on as before and say why."""
        try:
            config, ignored = reload.effective(self._config, load_httpd(self._path))
            if self._certificate is not None and config.tls is not None:
                self._certificate.reload(config.tls)
            await self._service.receiver.use(config)
        except Exception as error:  # noqa: BLE001 - after any error the running configuration stays
            events.emit("daemon.reload_refused", error=told(error))
            return
        if ignored:
            events.emit("daemon.reload_ignored", keys=", ".join(ignored))
        self._config = config
        self._service.use(config)
        self._server.use(config)
        events.setup(config.environment.log.level)
        events.emit("daemon.reloaded")

    async def _stop(self) -> None:
        """Accept no more, and let what is asked be answered."""
        server = self._server
        server.close()
        self._service.live.close()
        patience = self._config.shutdown.timeout.total_seconds()
        await lifecycle.step("requests", server.emptied(), patience, on=lambda: how_many(server.requests, "request"))
        await server.end()
        await lifecycle.step("changes", self._service.changes.ended(), patience)
        receiver = self._service.receiver
        await lifecycle.step("spool", receiver.spool.drained(), receiver.patience)
        await lifecycle.step("hints", receiver.spool.notified(), 1.0, on=lambda: "PostgreSQL")
        await receiver.close()
        await lifecycle.step("keys", self._service.keys.noted(), 2.0, on=lambda: "PostgreSQL")
