"""equipment — the parts that connections use while they are served, made from a configuration

Owns: policy with its sources, and authentication, as one whole that a reload replaces.
Guarantees: making it opens only files, so that making it proves a configuration. Replaced equipment serves the
    connections that began with it, and is closed after the last of them.
Raises: ConfigError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smtpd.login.authenticate import Authentication
from smtpd.policy.compile import load_policy
from smtpd.policy.content_check import ContentChecker
from smtpd.policy.list_query import ListQueries
from smtpd.policy.session import Sources

if TYPE_CHECKING:
    from shared.config.smtpd.settings import SmtpdConfig
    from smtpd.login.failures import Failures
    from smtpd.rates.limits import Rates


class ServerParts:
    """Policy and authentication by one configuration."""

    def __init__(self, config: SmtpdConfig, conninfo: str, rates: Rates, replaced: ServerParts | None = None) -> None:
        """`replaced` is what served before: its counts of failures go on."""
        self.policy = load_policy(config)
        self.authentication: Authentication = Authentication(
            config,
            conninfo,
            counts=rates,
            failures=replaced.failures if replaced is not None else None,
        )
        self.authentication.prepare()
        self.failures: Failures = self.authentication.failures
        self._queries = ListQueries(conninfo)
        check = config.policy.contentcheck
        self._checker = ContentChecker(check) if check is not None else None
        self.sources = Sources(rates=rates, ask=self._queries, check=self._checker)

    async def close(self) -> None:
        """Give back threads and connections."""
        if self._checker is not None:
            await self._checker.close()
        await self._queries.close()
        await self.authentication.close()
