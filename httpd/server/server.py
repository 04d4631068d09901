"""server — uvicorn, started and stopped in our order

Owns: the listener and its connections; the deadlines of clients that are slow.
Guarantees: signals are shared/lifecycle.py's alone. A stop lets requests end that have begun, and closes idle
    connections at once. A client that takes too long for a head or a body is closed.
See: uvicorn.Server, whose order of starting and stopping is for a program of its own.
"""

from __future__ import annotations

import asyncio
import logging
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from uvicorn.server import ServerState

from httpd.server.protocol import LimitedProtocol

if TYPE_CHECKING:
    import socket

    from httpd.server.certificate import Certificate
    from httpd.tally import Tally
    from shared.config.httpd.settings import HttpdConfig


class Server:
    """One listener and its connections."""

    def __init__(self, application: Any, config: HttpdConfig, certificate: Certificate | None, tally: Tally) -> None:
        self.certificate = certificate
        self._tally = tally
        self._state = ServerState()
        self._config = uvicorn.Config(
            application, http=LimitedProtocol, ws="none", lifespan="off", log_config=None, access_log=False,
            proxy_headers=False, server_header=False, date_header=True,
        )  # fmt: skip
        self._config.load()
        self._listener: asyncio.Server | None = None
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # a client's errors are answered, and ours are events
        self.use(config)

    def use(self, config: HttpdConfig) -> None:
        """Serve by these limits from now on."""
        self._limits = config.limits
        self._timeout = config.timeout
        self._config.timeout_keep_alive = int(config.timeout.idle.total_seconds()) or 1

    async def open(self, listening: socket.socket) -> None:
        """Accept on this socket."""
        context = None if self.certificate is None else self.certificate.context()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accepted, sock=listening, ssl=context, backlog=1024)

    def _accepted(self) -> asyncio.Protocol:
        return LimitedProtocol(
            self._config, self._state, {}, limits=self._limits, timeout=self._timeout, tally=self._tally
        )

    async def run(self) -> None:
        """Every second: the date for answers, and the clients whose time is up."""
        loop = asyncio.get_running_loop()
        while True:
            self._state.default_headers = self._config.encoded_headers + _date()
            for each in tuple(self._connections):
                each.judge(loop.time())
            await asyncio.sleep(1)

    @property
    def _connections(self) -> set[LimitedProtocol]:
        return cast("set[LimitedProtocol]", self._state.connections)

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._state.connections)

    @property
    def requests(self) -> int:
        """How many are being answered."""
        return len(self._state.tasks)

    def close(self) -> None:
        """Accept no more; idle connections end now, others after their answer."""
        if self._listener is not None:
            self._listener.close()
        for each in tuple(self._connections):
            each.shutdown()

    async def emptied(self) -> None:
        """Return when the last request is answered and its connection gone."""
        while self._state.tasks:
            await asyncio.wait(tuple(self._state.tasks))
        for each in tuple(self._connections):
            await each.ended.wait()

    async def end(self) -> None:
        """Cut what is left."""
        for each in tuple(self._connections):
            each.transport.abort()
        for task in tuple(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)


def _date() -> list[tuple[bytes, bytes]]:
    return [(b"date", formatdate(usegmt=True).encode())]
