"""partition — the partition id of a recipient domain, and the channel on which its workers listen

Owns: the stable hash from a domain to `_partid`, and the one from there to a channel of NOTIFY. Pure.
Guarantees: the same domain gives the same id on every host, in every version: golden values pin it
    (tests/unit/shared/test_partition.py). SQL computes the same hash, so that mail enqueued inside PostgreSQL gets the
    same id: the first four bytes of sha256(domain), big-endian, modulo count, plus one. A worker listens to every
    channel on which its mail may be announced: to all of them unless the form of its condition says which ids it has.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from shared.mail.domain import comparable

_CHANNELS: Final = 64  # as in the SQL function partition_channel
#: For every version and everything that concerns no partition; workers of the versions before hear only this one.
GENERAL: Final = "pillarbox"
ALL_CHANNELS: Final = frozenset(f"pillarbox_{number}" for number in range(_CHANNELS))
# What says by its form which ids it selects: `metadata->>'_partid'` compared with literals, or NULL, joined by OR. A
# literal with a quote, a backslash or a prefix (E'', U&'') is beyond this, and so is everything else.
_LITERAL = r"'[^'\\]*'"
_TERM = (
    r"\(*\s*metadata\s*->>\s*'_partid'\s*"
    rf"(?:=\s*{_LITERAL}|in\s*\(\s*{_LITERAL}(?:\s*,\s*{_LITERAL})*\s*\)|is\s+null)\s*\)*"
)
_SAID = re.compile(rf"\s*{_TERM}(?:\s+or\s+{_TERM})*\s*", re.IGNORECASE)
_VALUE = re.compile(r"(?:=|in\s*\(|,)\s*'([^'\\]*)'", re.IGNORECASE)
_NO_ID = re.compile(r"is\s+null", re.IGNORECASE)


def partition_id(domain: str, count: int) -> str:
    """The partition id, "1" to str(count), of a recipient domain.

    Upper and lower case are the same domain, and so are a U-label and its A-label (RFC 5890 section 2.3.2.1).
    """
    digest = hashlib.sha256(comparable(domain).encode()).digest()
    return str(int.from_bytes(digest[:4], "big") % count + 1)


def channel(partid: str | None) -> str:
    """The channel on which mail of this partition is notified; None is mail without an id."""
    digest = hashlib.sha256((partid or "").encode()).digest()
    return f"pillarbox_{int.from_bytes(digest[:4], 'big') % _CHANNELS}"


def channels(where: str) -> frozenset[str]:
    """The channels on which mail may be notified that a worker's condition selects."""
    if not _SAID.fullmatch(where):
        return ALL_CHANNELS
    named = {channel(partid) for partid in _VALUE.findall(where)}
    return frozenset(named | {channel(None)} if _NO_ID.search(where) else named)
