"""serve — one process that accepts mail: its spool, its listeners, and the parts that all its connections share

Owns: these parts and the order of their stop: stop accepting, let messages in transfer finish, commit all that are
    received.
Guarantees: after a stop, every message that got 250 is committed. A reload is whole or raises, and then changes
    nothing.
Raises: ConfigError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shared import lifecycle
from shared.how_many import how_many
from shared.postgres import database
from shared.postgres.presence import Presence
from shared.spool.spool import COMMITTERS, Spool
from smtpd.connection.listener import Listeners
from smtpd.rates.limits import ClientRates

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from shared.config.smtpd.settings import SmtpdConfig
    from smtpd.connection.sockets import Bound
    from smtpd.rates.limits import RateCounts

_NOTIFYING: Final = 1.0  # seconds to wake the workers of what was committed last
_LEAVING: Final = 1.0  # seconds for taking ourselves off the register
TRANSFER: Final = 10.0  # seconds for messages in transfer when stopping


class Serving:
    """Everything one process serves with."""

    def __init__(self, config: SmtpdConfig, conninfo: str, counts: RateCounts) -> None:
        self._config = config
        volumes = database.volumes(config.environment.database.uri, config.environment.var)
        self.spool = Spool(conninfo, config.spool, "pillarbox smtpd", volumes)
        self._presence = Presence(conninfo, "smtpd")
        self._rates = ClientRates(config.rates, config.relay.networks, counts, _room(config))
        self.listeners = Listeners(config, self.spool, self._rates, conninfo)

    async def open(self, doors: Sequence[Bound]) -> None:
        """Accept on these sockets."""
        await self.listeners.open(doors)

    def parts(self) -> dict[str, Coroutine[object, object, None]]:
        """The tasks that must run as long as it serves."""
        committers = {f"spool-{number}": self.spool.run() for number in range(COMMITTERS)}
        return {
            **committers,
            "vanished": self.spool.watch(),
            "notifier": self.spool.notify(),
            "space": self.spool.measure(),
            "load": self.listeners.load.watch(),
            "presence": self._presence.run(),
        }

    def reload(self, config: SmtpdConfig) -> None:
        """Serve new connections by this configuration; those that are open keep theirs."""
        self.listeners.use(config)
        self._rates.configure(config.rates, config.relay.networks, _room(config))

    async def stop(self) -> None:
        """Stop serving."""
        listeners = self.listeners
        await listeners.close()
        listeners.stop_connections()
        await lifecycle.step(
            "sessions", listeners.emptied(), TRANSFER, on=lambda: how_many(len(listeners.connections), "connection")
        )
        await lifecycle.step("spool", self.spool.drained(), patience(self._config))
        await lifecycle.step("hints", self.spool.notified(), _NOTIFYING, on=lambda: "PostgreSQL")
        await lifecycle.step("presence", self._presence.leave(), _LEAVING, on=lambda: "PostgreSQL")
        await listeners.release()


def _room(config: SmtpdConfig) -> int:
    """The sessions of all processes."""
    return config.load.sessions * config.processes


def patience(config: SmtpdConfig) -> float:
    """Seconds that received messages may take to be committed when stopping."""
    return config.spool.timeout.total_seconds()
