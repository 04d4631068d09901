"""next_hop — the transports that name no next hop, and a next hop for them

Owns: what "no next hop is configured" means: a transport with nothing in `connection` that says where mail goes, as in
    the file as it is shipped.
Guarantees: pure. `routes` name hosts for single domains only, so they are not a next hop for the others.
See: shared/config/queued/routing.py, Connection.names_next_hop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.config.queued.routing import SMTP_PORT, Connection, HostPort

if TYPE_CHECKING:
    from shared.config.queued.settings import QueuedConfig


def without_next_hop(config: QueuedConfig) -> list[str]:
    """The ids of the transports that name no next hop."""
    return [transport.id for transport in config.transports if not transport.connection.names_next_hop]


def with_next_hop(config: QueuedConfig, place: HostPort) -> QueuedConfig:
    """The configuration in which those transports deliver to this place; the others stay as they are."""
    connection = Connection(server=place.host, port=SMTP_PORT if place.port is None else place.port)
    transports = [
        each if each.connection.names_next_hop else each.model_copy(update={"connection": connection})
        for each in config.transports
    ]
    return config.model_copy(update={"transports": transports})
