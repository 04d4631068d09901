"""host_name — the name that this host introduces itself by, where the configuration gives none

Guarantees: the fully qualified name of this host; where it has none, an address literal, never `localhost`, which every
    host is called.
See: RFC 5321 section 2.3.5 (a host without a name gives an address literal) and 4.1.3; Postfix myhostname.
"""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

# Addresses for documentation. Nothing is sent to them: connecting a UDP socket only has the system choose the address
# to send from.
_FAR: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_QUALIFIED: Final = re.compile(rf"(?=.{{1,255}}$){_LABEL}(\.{_LABEL})*\.[A-Za-z]([A-Za-z0-9-]{{0,61}}[A-Za-z0-9])?")
_EVERYBODYS: Final = ("localhost", "localdomain", "localdomain4", "localdomain6")


def own_name() -> str:
    """This host's fully qualified name, or the literal of the address it sends from."""
    name = socket.getfqdn()
    return name if is_qualified(name) else literal(_own_address())


def is_qualified(name: str) -> bool:
    """Whether the name is of one host: with a domain, and not that of every host's loopback."""
    return bool(_QUALIFIED.fullmatch(name)) and name.lower().rpartition(".")[2] not in _EVERYBODYS


def literal(address: str) -> str:
    """An IP address as an address literal (RFC 5321 section 4.1.3)."""
    return f"[{'IPv6:' if ip_address(address).version == 6 else ''}{address}]"  # noqa: PLR2004 - the version itself


def _own_address() -> str:
    for family, far in _FAR:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 25))
            return str(probe.getsockname()[0])
    return "127.0.0.1"
