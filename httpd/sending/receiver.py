"""receiver — where mail that comes by HTTP goes: the rules, limits and spool of smtpd.yaml

Owns: the parts that smtpd makes for a server, without sockets and sessions; one as a whole that a reload replaces.
Guarantees: the same rooms decide as for SMTP. A configuration that cannot be used changes nothing.
Raises: ConfigError.
See: smtpd/connection/equipment.py and smtpd/connection/listener.py, which do the same for connections.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from shared.config.smtpd.load import load_smtpd
from shared.errors import ConfigError
from shared.host_name import own_name
from shared.masking import show
from shared.postgres import database
from shared.spool.spool import COMMITTERS, Spool
from smtpd.policy.compile import load_policy
from smtpd.policy.content_check import ContentChecker
from smtpd.policy.list_query import ListQueries
from smtpd.policy.session import Sources
from smtpd.rates.limits import ClientRates
from smtpd.session.body_budget import BodyBudget
from smtpd.session.service import Service

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from shared.config.httpd.settings import HttpdConfig
    from shared.config.smtpd.settings import Server, SmtpdConfig
    from smtpd.rates.limits import RateCounts

#: What the queue has as `serverid` of mail that came by HTTP.
SERVERID: Final = "http"


class Receiver:
    """Takes mail by one server of smtpd.yaml."""

    def __init__(self, config: HttpdConfig, path: Path, conninfo: str, counts: RateCounts) -> None:
        """`path`: httpd.yaml's; `counts`: of the limits of `rates`."""
        self._path, self._conninfo = path, conninfo
        rules = rules_of(path, config)
        volumes = database.volumes(config.environment.database.uri, config.environment.var)
        self.spool = Spool(conninfo, rules.spool, "pillarbox httpd spool", volumes)
        self._rates = ClientRates(rules.rates, rules.relay.networks, counts)
        self._closing: list[ListQueries | ContentChecker] = []
        self.service = self._made(config, rules)

    async def use(self, config: HttpdConfig) -> SmtpdConfig:
        """Take mail by the files as they are now, and return the rules; ConfigError changes nothing.

        Requests go on while they are read.
        """
        rules = await asyncio.to_thread(rules_of, self._path, config)
        replaced, self._closing = self._closing, []
        try:
            self.service = self._made(config, rules)
        except ConfigError:
            self._closing = replaced
            raise
        self._rates.configure(rules.rates, rules.relay.networks)
        for each in replaced:
            await each.close()
        return rules

    def parts(self) -> dict[str, Coroutine[object, object, None]]:
        """The tasks that must run as long as it takes mail."""
        committers = {f"spool-{number}": self.spool.run() for number in range(COMMITTERS)}
        return {
            **committers,
            "vanished": self.spool.watch(),
            "notifier": self.spool.notify(),
            "space": self.spool.measure(),
        }

    async def close(self) -> None:
        """Give back connections."""
        for each in self._closing:
            await each.close()

    @property
    def patience(self) -> float:
        """Seconds that what is received may take to be committed when stopping."""
        return self.service.config.spool.timeout.total_seconds()

    def _made(self, config: HttpdConfig, rules: SmtpdConfig) -> Service:
        server = _server(config, rules)
        policy = load_policy(rules)
        queries = ListQueries(self._conninfo)
        check = rules.policy.contentcheck
        checker = None if check is None else ContentChecker(check)
        self._closing += [queries] if checker is None else [queries, checker]
        return Service(
            config=rules,
            server=server,
            hostname=server.hostname or own_name(),
            spool=self.spool,
            budget=BodyBudget(rules.memory.bodies),
            policy=policy,
            sources=Sources(rates=self._rates, ask=queries, check=checker),
            rates=self._rates,
            serverid=SERVERID,
        )


def rules_of(path: Path, config: HttpdConfig) -> SmtpdConfig:
    """The rules by which httpd.yaml at `path` has mail taken."""
    return load_smtpd(path.parent / config.mail.smtpd)


def _server(config: HttpdConfig, rules: SmtpdConfig) -> Server:
    wanted = config.mail.server
    for server in rules.servers:
        if wanted in {None, server.id}:
            return server
    known = ", ".join(server.id for server in rules.servers)
    raise ConfigError(f"mail.server: server {show(wanted)} does not exist in {config.mail.smtpd}; allowed: {known}")
