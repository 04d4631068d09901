"""equipment — makes the parts for delivery from a configuration, and replaces them while they are in use

Owns: transports with their resolver and the MTA-STS policies they share, the signer, and the screening, as one whole
    that a reload replaces.
Guarantees: making it opens only files, so that making it proves a configuration. A replacement is whole: between two
    steps of the event loop. A transport that did not change keeps its connections; one that did ends with its last
    attempt, and deliveries that wait in it for a connection go back to the queue untried.
Raises: ConfigError for a key or a secret that cannot be read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from queued.deliver import Transport
from queued.destinations.destinations import Destinations
from queued.outcome.react import Reactions, suspending
from queued.pacing.pace import Paces
from queued.reports.suppression_screen import Screening
from queued.routing.resolver import Resolver
from queued.routing.warmup import Warmups
from queued.signing.sign import Signer
from queued.smtp.auth import alike, logins
from queued.smtp.own_secrets import OwnSecrets
from queued.tls.mta_sts_cache import MtaSts
from shared.host_name import own_name

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from shared.config.queued.settings import QueuedConfig


class Equipment:
    """The parts for delivery of one configuration."""

    resolver: Resolver
    sts: MtaSts
    paces: Paces
    warmups: Warmups
    reactions: Reactions
    secrets: OwnSecrets
    transports: dict[str, Transport]

    def __init__(
        self,
        config: QueuedConfig,
        replaced: Equipment | None = None,
        *,
        signer: Signer | None = None,
        paces: Paces | None = None,
        reactions: Reactions | None = None,
    ) -> None:
        """`replaced` is what serves now: what did not change is taken over from it.

        signer: one whose keys were read just now, which takes long for thousands of them; None to read them here.
        paces, reactions: those of the first equipment, which all later ones take over; None for new ones.
        """
        self.config = config
        # Always made again: a file of keys, or of the secret, may have changed under the same name.
        self.signer = signer or Signer(config.signing)
        self.screening = Screening(config.suppression)
        kept = replaced is not None and replaced.config.routing == config.routing
        self.resolver = replaced.resolver if replaced is not None and kept else Resolver(config.routing.dns)
        self.sts = replaced.sts if replaced is not None else MtaSts()  # an enforced policy outlives a reload
        self.paces = replaced.paces if replaced is not None else paces or Paces()  # `use_pacing` gives it its limits
        self.warmups = replaced.warmups if replaced is not None else Warmups()
        self.reactions = replaced.reactions if replaced is not None else reactions or Reactions(config.rules)
        self.secrets = replaced.secrets if replaced is not None else OwnSecrets()  # hosts remember those before, too
        self.transports = {}
        for settings in config.transports:
            known = replaced.transports.get(settings.id) if replaced is not None and kept else None
            # Files may have changed though the settings have not.
            if known is None or known.settings != settings or not alike(known.logins, logins(settings)):
                known = Transport(
                    settings,
                    own_name(),
                    self.resolver,
                    config.routing.ourselves,
                    paces=self.paces,
                    warmups=self.warmups,
                    reactions=self.reactions,
                    sts=self.sts,
                    claim=config.claim,
                    secrets=self.secrets,
                )
            self.transports[settings.id] = known
        if replaced is None:
            self.use_pacing()

    def use_pacing(self) -> None:
        """Go by the limits of this configuration from now on."""
        self.paces.use(self.config.pacing, {each.id: each.windows for each in self.config.transports})


class Delivering:
    """The equipment that is in use, and what is left of those before."""

    def __init__(self, config: QueuedConfig) -> None:
        #: These three stay the same objects over every reload, and change within.
        self.transports: dict[str, Transport] = {}
        self.destinations = Destinations(self.transports, config.claim)
        self.paces = Paces()
        suspend, lower = suspending(self.paces.suspend), self.destinations.lower
        reactions = Reactions(config.rules, suspend=suspend, lower=lower)
        self.equipment = Equipment(config, paces=self.paces, reactions=reactions)
        self.transports.update(self.equipment.transports)
        self._ending: set[asyncio.Task[None]] = set()

    def use(self, equipment: Equipment) -> None:
        """From now on attempts begin with this; it was made to replace what is in use."""
        old, self.equipment = self.equipment, equipment
        self.transports.clear()
        self.transports.update(equipment.transports)
        equipment.use_pacing()
        equipment.reactions.use(equipment.config.rules)
        for id_, transport in old.transports.items():
            if equipment.transports.get(id_) is not transport:
                self._end(transport.close())
        if old.resolver is not equipment.resolver:
            self._end(old.resolver.close())

    def retest(self) -> None:
        """An operator retries mail: the next delivery tests what is dead, however long it was to be left alone."""
        self.destinations.retest()
        for transport in self.transports.values():
            transport.hosts.retest()

    async def close(self) -> None:
        """End every connection, waiting for those in use."""
        equipment = self.equipment
        closing = [equipment.resolver.close(), equipment.sts.close(), *(t.close() for t in self.transports.values())]
        await asyncio.gather(*closing, *self._ending)

    def _end(self, work: Coroutine[None, None, None]) -> None:
        ending = asyncio.create_task(work)
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
