"""listener — accepts connections, and gives each one its configuration

Owns: the accepting sockets of this process, the parts that each server's connections share, the register of open
    connections.
Guarantees: a connection keeps the configuration it began with. A configuration is taken as a whole: when a part of it
    cannot be used, nothing changes. A client that is turned away costs one reply and no session.
Raises: ConfigError.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from shared.host_name import own_name
from smtpd.connection.connection import Connection
from smtpd.connection.equipment import ServerParts
from smtpd.session.body_budget import BodyBudget
from smtpd.session.overload import Load
from smtpd.session.service import Service
from smtpd.tls import Certificates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared.config.smtpd.settings import Server, SmtpdConfig
    from shared.spool.spool import Spool
    from smtpd.connection.sockets import Bound
    from smtpd.rates.limits import Rates


class Listeners:
    """Every listening socket of this process, and the connections that came in through them."""

    def __init__(self, config: SmtpdConfig, spool: Spool, rates: Rates, conninfo: str) -> None:
        self.connections: set[Connection] = set()
        self.load = Load(config.load, self.connections)
        self._spool = spool
        self._rates = rates
        self._conninfo = conninfo
        self._equipment: ServerParts | None = None
        self._closing: dict[ServerParts, asyncio.Future[None]] = {}  # replaced by a reload, still in use
        self._budget = BodyBudget(config.memory.bodies)
        self._servers: list[asyncio.Server] = []
        self._services = self._made(config)

    async def open(self, doors: Sequence[Bound]) -> None:
        """Accept on these sockets, which listen already."""
        loop = asyncio.get_running_loop()
        for index, number, door in doors:
            backlog = self._services[index].server.listeners[number].backlog
            accept = self._acceptor(index, number)
            self._servers.append(await loop.create_server(accept, sock=door, backlog=backlog))

    def use(self, config: SmtpdConfig) -> None:
        """Serve new connections by this configuration, which has the same sockets; ConfigError changes nothing."""
        replaced = self._equipment
        self._services = self._made(config)
        self.load.configure(config.load)
        if replaced is not None:
            last = [c for c in self.connections if c.service.authentication is replaced.authentication]
            closing = asyncio.ensure_future(_close_after(replaced, last))
            self._closing[replaced] = closing
            closing.add_done_callback(lambda _: self._closing.pop(replaced, None))

    async def release(self) -> None:
        """Give back what connections have used; none is open any more, or none is waited for."""
        for closing in tuple(self._closing.values()):
            closing.cancel()
        for equipment in (*self._closing, self._equipment):
            if equipment is not None:
                await equipment.close()

    async def close(self) -> None:
        """Stop accepting; open connections go on."""
        for server in self._servers:
            server.close()

    def stop_connections(self) -> None:
        """Ask every open connection to end: idle ones now, receiving ones after their message."""
        for connection in tuple(self.connections):
            connection.stop()

    async def emptied(self) -> None:
        """Return when the last connection is gone."""
        while self.connections:
            await next(iter(self.connections)).ended.wait()

    def _acceptor(self, index: int, number: int) -> Callable[[], asyncio.Protocol]:
        def accept() -> asyncio.Protocol:
            refusal = self.load.refusal()
            if refusal is not None:
                return TurnedAway(refusal)
            service = self._services[index]
            connection = Connection(service, service.server.listeners[number], self.connections)
            # Here, not when it is made: many may be accepted before the first of them is.
            self.connections.add(connection)
            return connection

        return accept

    def _made(self, config: SmtpdConfig) -> list[Service]:
        equipment = ServerParts(config, self._conninfo, self._rates, self._equipment)
        services = [self._service(config, index, server, equipment) for index, server in enumerate(config.servers)]
        # Nothing is refused any more: only now may what goes on from before be changed.
        equipment.authentication.begin()
        self._budget.divide(
            share=config.memory.share,
            reserve=config.memory.reserve,
            largest=max(server.phases.data.maxsize for server in config.servers),
        )
        self._equipment = equipment
        return services

    def _service(self, config: SmtpdConfig, index: int, server: Server, equipment: ServerParts) -> Service:
        return Service(
            config=config,
            server=server,
            hostname=server.hostname or own_name(),
            spool=self._spool,
            budget=self._budget,
            policy=equipment.policy,
            sources=equipment.sources,
            authentication=equipment.authentication,
            certificates=Certificates(server.tls, f"servers[{index}].tls") if server.tls else None,
            rates=self._rates,
            load=self.load,
        )


async def _close_after(replaced: ServerParts, last: Sequence[Connection]) -> None:
    for connection in last:
        await connection.ended.wait()
    await replaced.close()


class TurnedAway(asyncio.Protocol):
    """A client that we have no room for: it gets a refusal in place of a greeting (RFC 5321 section 3.1)."""

    def __init__(self, reply: str) -> None:
        self._reply = reply

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say it and close."""
        door = cast("asyncio.Transport", transport)
        door.write(self._reply.encode() + b"\r\n")
        door.close()
