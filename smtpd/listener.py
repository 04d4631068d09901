"""listener — the sockets smtpd accepts on

Owns: binding every listener of the configuration, TLS certificates, and telling open connections to stop.
Called by: smtpd.daemon.
Guarantees: all or nothing: a port that cannot be bound, or a certificate that cannot be read, closes what was opened
    and is one clear line.
Raises: ListenFailed, ConfigError.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

from shared.errors import ConfigError, ListenFailed
from smtpd.protocol import Connection
from smtpd.session import Hooks

if TYPE_CHECKING:
    from shared.smtpd_config import Server, SmtpdConfig
    from shared.spool import Spool


class Listeners:
    """Every listening socket of this process, and the connections that came in through them."""

    def __init__(self, config: SmtpdConfig, spool: Spool) -> None:
        self._config = config
        self._spool = spool
        self._servers: list[asyncio.Server] = []
        self.connections: set[Connection] = set()

    async def open(self) -> list[str]:
        """Bind and accept; returns `address:port` of each socket, as bound."""
        try:
            for index, server in enumerate(self._config.servers):
                await self._open_server(index, server)
        except BaseException:
            await self.close()
            raise
        return [
            f"{name[0]}:{name[1]}" for server in self._servers for name in (s.getsockname() for s in server.sockets)
        ]

    async def close(self) -> None:
        """Accept nobody any more; open connections go on."""
        for server in self._servers:
            server.close()

    def stop_connections(self) -> None:
        """Ask every open connection to end: idle ones now, receiving ones after their message."""
        for connection in tuple(self.connections):
            connection.stop()

    async def emptied(self) -> None:
        """Return when the last connection is gone."""
        while self.connections:
            await asyncio.wait([asyncio.ensure_future(c.ended.wait()) for c in self.connections])

    async def _open_server(self, index: int, server: Server) -> None:
        loop = asyncio.get_running_loop()
        hostname = server.hostname or socket.getfqdn()
        hooks = Hooks(self._config, server, hostname, self._spool)
        tls = _context(index, server)
        for number, listener in enumerate(server.listeners):

            def accept() -> Connection:
                return Connection(
                    hooks,
                    self.connections,
                    loop=loop,
                    hostname=hostname,
                    ident="ESMTP Pillarbox",
                    data_size_limit=server.phases.data.maxsize,
                    enable_SMTPUTF8=True,
                    tls_context=tls,
                    timeout=server.timeout.idle.total_seconds(),
                )

            try:
                self._servers.append(
                    await loop.create_server(accept, listener.address, listener.port, backlog=listener.backlog)
                )
            except OSError as error:
                where = f"servers[{index}].listeners[{number}]: {listener.address}:{listener.port}"
                raise ListenFailed(f"{where}: cannot listen: {error.strerror or error}") from None


def _context(index: int, server: Server) -> ssl.SSLContext | None:
    """The TLS context for STARTTLS; None when no certificate is configured."""
    if server.tls is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(server.tls.certificate, server.tls.privatekey)
    except (OSError, ssl.SSLError) as error:
        files = f"{server.tls.certificate}, {server.tls.privatekey}"
        raise ConfigError(f"servers[{index}].tls: {files}: {error.strerror or error}") from None
    return context
