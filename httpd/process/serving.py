"""serving — one process that answers requests: its pool, its way of mail into the queue, its connections

Owns: these parts, the order of their stop, and their reload.
Guarantees: a reload is whole or raises, and then changes nothing but certificates that were read again. After a stop,
    what was answered with 202 is committed.
Raises: ConfigError; what PostgreSQL refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from httpd import app
from httpd.access.keys import Keys
from httpd.sending.receiver import Receiver
from httpd.server.server import Server
from httpd.service import Service
from shared import lifecycle
from shared.how_many import how_many
from shared.postgres import acting
from shared.postgres.presence import Presence

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine
    from pathlib import Path

    from httpd.server.certificate import Certificate
    from httpd.tally import Tally
    from shared.config.httpd.settings import HttpdConfig
    from shared.config.smtpd.settings import SmtpdConfig
    from shared.postgres import database
    from smtpd.rates.limits import RateCounts


class Serving:
    """Everything one process serves with."""

    def __init__(
        self,
        config: HttpdConfig,
        pool: database.Pool,
        receiver: Receiver,
        service: Service,
        server: Server,
        presence: Presence,
    ) -> None:
        self.pool, self.service, self.server = pool, service, server
        self._config = config
        self._presence = presence
        self._receiver = receiver
        self._certificate = server.certificate

    @classmethod
    async def made(
        cls,
        path: Path,
        config: HttpdConfig,
        conninfo: str,
        tally: Tally,
        keys: RateCounts,
        mail: RateCounts,
        certificate: Certificate | None,
    ) -> Self:
        """All parts, once the database has answered. path: httpd.yaml's; keys and mail: what counts their rates."""
        pool = await acting.open_pool(conninfo, "pillarbox httpd", config.environment.database.connections)
        try:
            receiver = Receiver(config, path, conninfo, mail)
            await receiver.spool.prove()
            service = Service(config, pool, receiver, path.parent, Keys(pool, config.rates, keys, config.oidc), tally)
            server = Server(app.made(service), config, certificate, tally)
            return cls(config, pool, receiver, service, server, Presence(conninfo, "httpd"))
        except BaseException:
            await pool.close()
            raise

    async def open(self, door: socket.socket) -> None:
        """Accept on this socket."""
        await self.server.open(door)

    def parts(self) -> dict[str, Coroutine[object, object, None]]:
        """The tasks that must run as long as it serves."""
        return {
            "requests": self.server.run(),
            "keys": self.service.keys.run(),
            "live": self.service.live.run(),
            "presence": self._presence.run(),
            **self._receiver.parts(),
        }

    async def use(self, config: HttpdConfig) -> SmtpdConfig:
        """Answer further requests by this configuration, and return the rules that it takes mail by."""
        if self._certificate is not None and config.tls is not None:
            self._certificate.reload(config.tls)
        rules = await self._receiver.use(config)
        self._config = config
        self.service.use(config)
        self.server.use(config)
        return rules

    async def stop(self) -> None:
        """Accept no more, and let what is asked be answered."""
        server, receiver = self.server, self._receiver
        server.close()
        self.service.live.close()
        patience = self._config.shutdown.timeout.total_seconds()
        await lifecycle.step("requests", server.emptied(), patience, on=lambda: how_many(server.requests, "request"))
        await server.end()
        await lifecycle.step("changes", self.service.changes.ended(), patience)
        await lifecycle.step("spool", receiver.spool.drained(), receiver.patience)
        await lifecycle.step("hints", receiver.spool.notified(), 1.0, on=lambda: "PostgreSQL")
        await receiver.close()
        await lifecycle.step("presence", self._presence.leave(), 1.0, on=lambda: "PostgreSQL")
        await lifecycle.step("keys", self.service.keys.noted(), 2.0, on=lambda: "PostgreSQL")

    async def close(self) -> None:
        """Give back connections."""
        await self.pool.close()
