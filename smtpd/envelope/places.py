"""places — the client addresses that count as one

Owns: the names of an address's host and network, by which rates, bans, policy and memory count. Pure.
Guarantees: an IPv4-mapped IPv6 address is the IPv4 one, and a zone is left out. A text that is not an IP address is a
    place of its own: all clients whose address is unknown count as one.
See: RFC 4291 section 2.5.1 (one host may use every address within its /64).
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

#: A client's address where a proxy does not know it. It is in no network, and so has no rights.
UNKNOWN: Final = "unknown"
_HOST: Final = (32, 64)


@lru_cache(maxsize=1024)  # a client sends more than one message
def parsed(address: str) -> IPv4Address | IPv6Address | None:
    """An address without its zone, an IPv4-mapped one as IPv4; None if it is none."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


def host(address: str) -> str:
    """The IPv4 address, or the /64 of an IPv6 address."""
    return network(address, *_HOST)


@lru_cache(maxsize=4096)
def network(address: str, ipv4: int, ipv6: int) -> str:
    """The network of so many bits; text that is not an IP address is returned unchanged."""
    found = parsed(address)
    if found is None:
        return address
    return str(ip_network((found, ipv6 if isinstance(found, IPv6Address) else ipv4), strict=False))
