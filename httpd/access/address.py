"""address — the client that a request comes from, through the proxies that we trust

Owns: reading X-Forwarded-For. Pure.
Guarantees: what a client writes there itself counts for nothing: the list is read from its end, as long as each entry
    is a proxy of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smtpd.envelope import places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.config.fields import Network


def client_address(peer: str, forwarded: str | None, proxies: Sequence[Network]) -> str:
    """The address of the client, an IPv4-mapped one as IPv4; places.UNKNOWN where a proxy says none."""
    found = places.parsed(peer)
    if found is None:
        return places.UNKNOWN
    for entry in reversed([] if forwarded is None else forwarded.split(",")):
        if not any(found in network for network in proxies):
            break
        named = places.parsed(entry.strip().strip('"').removeprefix("[").partition("]")[0])
        if named is None:
            return places.UNKNOWN
        found = named
    return str(found)
