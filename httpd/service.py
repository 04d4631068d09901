"""service — the parts that all requests share

Owns: the configuration as it is now, the pool of connections, the keys, the way of mail into the queue, and the other
    daemons' files beside ours.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from httpd.access.address import client_address
from httpd.changes import Changes
from httpd.files import Files
from httpd.live import Live
from httpd.sending.idempotency import UnderWay

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request

    from httpd.access.caller import Caller
    from httpd.access.keys import Keys
    from httpd.sending.receiver import Receiver
    from httpd.tally import Tally
    from shared.config.httpd.settings import HttpdConfig
    from shared.postgres import database


class Service:
    """What a request finds at `request.app.state.service`."""

    def __init__(
        self,
        config: HttpdConfig,
        pool: database.Pool,
        receiver: Receiver,
        folder: Path,
        keys: Keys,
        tally: Tally,
    ) -> None:
        """folder: where httpd.yaml is; tally: what this process and others hold."""
        self.config = config
        self.files = Files(folder, str(config.mail.smtpd))
        self.examining = asyncio.Lock()  # held by the one examination of doctor in this process
        self.pool = pool
        self.receiver = receiver
        self.under_way = UnderWay()
        self.live = Live(pool, self.files, self.examining)
        self.changes = Changes(config.environment.database.connections, tally)
        self.keys = keys
        self.tally = tally

    def use(self, config: HttpdConfig) -> None:
        """Serve by this configuration from now on."""
        self.config = config
        self.files.rules = str(config.mail.smtpd)
        self.keys.configure(config.rates, config.oidc)

    def address(self, request: Request) -> str:
        """The client's IP address."""
        peer = "" if request.client is None else request.client.host
        forwarded = ",".join(request.headers.getlist("x-forwarded-for")) or None
        return client_address(peer, forwarded, self.config.proxy.networks)

    async def caller(self, request: Request) -> Caller:
        """The caller of a request; Problem 401 or 429."""
        request.state.address = address = self.address(request)
        caller = await self.keys.caller(request.headers.get("authorization"), address)
        request.state.caller = caller
        return caller
