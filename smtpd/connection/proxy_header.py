"""proxy_header — reads the header a proxy puts before the client's octets

Owns: the end of a PROXY header and the client that it names; the parsing is aiosmtpd's.
Guarantees: at most 107 octets of version 1 or 536 of version 2 are read. The octets after the header are left alone:
    they are the client's. A client whose address the proxy does not know has none of the rights of the proxy's address.
Raises: ProxyRefused.
See: https://www.haproxy.org/download/1.8/doc/proxy-protocol.txt, sections 2.1 and 2.2.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiosmtpd.proxy_protocol import AF, V2_CMD, V2_SIGNATURE, ProxyData, get_proxy

from smtpd.envelope.places import UNKNOWN

_V1: Final = b"PROXY "
_V1_LIMIT: Final = 107  # section 2.1: the longest line with its CR LF
_V2_FIXED: Final = 16  # section 2.2: signature, version, family, length
_V2_LIMIT: Final = 536  # section 2.2: what any receiver must take


class ProxyRefused(Exception):
    """The octets are not a PROXY header; the text says why."""


def header_length(octets: bytes) -> int | None:
    """How many of the octets are the header; None while that cannot be said."""
    if octets.startswith(_V1[: len(octets)]):
        end = octets.find(b"\r\n", 0, _V1_LIMIT)
        if end >= 0:
            return end + 2
        if len(octets) >= _V1_LIMIT:
            raise ProxyRefused("version 1 header is longer than 107 octets")
        return None
    if octets.startswith(V2_SIGNATURE[: len(octets)]):
        if len(octets) < _V2_FIXED:
            return None
        length = _V2_FIXED + int.from_bytes(octets[14:16], "big")
        if length > _V2_LIMIT:
            raise ProxyRefused("version 2 header is longer than 536 octets")
        return length if len(octets) >= length else None
    raise ProxyRefused("no PROXY header")


async def peer(header: bytes) -> tuple[str, int] | None:
    """Address and port of the client, UNKNOWN if the proxy does not know it; None if the proxy speaks for itself."""
    reader = asyncio.StreamReader(limit=_V2_LIMIT)
    reader.feed_data(header)
    reader.feed_eof()
    found: ProxyData = await get_proxy(reader)
    if not found.valid:
        raise ProxyRefused(found.error or "malformed header")
    local = found.version == 2 and found.command == V2_CMD.LOCAL  # noqa: PLR2004 - the protocol's version
    if local:
        return None
    if found.family not in {AF.INET, AF.INET6} or found.src_addr is None:
        return UNKNOWN, 0
    return str(found.src_addr), found.src_port or 0
