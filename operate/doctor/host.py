"""host — verdict on the name that this host introduces itself by

Guarantees: pure.
See: shared/host_name.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.doctor.checks import Finding, Severity, listed
from shared.host_name import is_qualified

if TYPE_CHECKING:
    from shared.config.queued.settings import QueuedConfig
    from shared.config.smtpd.settings import SmtpdConfig

_CHECK: Final = "host.name"


def name(smtpd: SmtpdConfig, queued: QueuedConfig, known: str, used: str) -> Finding:
    """Where this host's own name is needed, whether it has one; `known` by the system, `used` by us instead."""
    nameless = [
        *(f"servers[{i}].hostname" for i, server in enumerate(smtpd.servers) if server.hostname is None),
        *(f"transports[{i}].hostname" for i, each in enumerate(queued.transports) if each.hostname is None),
        *(["bounces.hostname"] if queued.bounces.hostname is None else []),
    ]
    if not nameless or is_qualified(known):
        return Finding(
            _CHECK, Severity.OK, f"by configuration, or {known}" if is_qualified(known) else "by configuration"
        )
    text = f"{known} is not a fully qualified name, so mail says {used}, which many hosts refuse"
    return Finding(_CHECK, Severity.WARN, text, f"give {listed(nameless)}, or this host a full name")
