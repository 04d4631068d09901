"""next_hop — the verdict on whether every transport names a next hop

Owns: one look at queued.yaml. A sink that `pillarbox up --sink` runs in the meantime changes nothing: its mail does not
    reach its recipients.
See: shared/config/queued/next_hop.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.doctor.checks import Finding, Severity, listed
from shared.config.queued.next_hop import without_next_hop

if TYPE_CHECKING:
    from shared.config.queued.settings import QueuedConfig

_CHECK: Final = "transport.next_hop"


def next_hop(queued: QueuedConfig) -> Finding:
    """One finding about all transports of queued.yaml."""
    missing = without_next_hop(queued)
    if not missing:
        return Finding(_CHECK, Severity.OK, "every transport of queued.yaml names one")
    found = f"no next hop is configured for transport {listed(missing)}: mail does not reach its recipients"
    remedy = "`pillarbox relay HOST` names it (or set connection.mode of the transport to mx); then reload queued"
    return Finding(_CHECK, Severity.ALARM, found, remedy)
