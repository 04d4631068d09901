"""partition — which partition id a recipient domain belongs to

Owns: the stable hash from a domain to `_partid`. Pure.
Called by: smtpd.policy, and every tool that asks where a destination lives.
Guarantees: the same domain gives the same id on every host, in every version: golden values pin it
    (tests/unit/test_partition.py). The hash can be written in SQL, so that mail enqueued inside PostgreSQL lands in the
    same place: the first four bytes of sha256(domain), big-endian, modulo count, plus one.
"""

from __future__ import annotations

import hashlib


def partition_id(domain: str, count: int) -> str:
    """The partition id, "1" to str(count), of a recipient domain.

    Upper and lower case are the same domain, and so are a U-label and its A-label (RFC 5890 section 2.3.2.1).
    """
    digest = hashlib.sha256(ascii_domain(domain).encode()).digest()
    return str(int.from_bytes(digest[:4], "big") % count + 1)


def ascii_domain(domain: str) -> str:
    """The domain in lower case with A-labels; what cannot be encoded (a label of 64 characters, say) stays as it is."""
    lowered = domain.lower()
    if lowered.isascii():
        return lowered
    try:
        return lowered.encode("idna").decode("ascii")
    except UnicodeError:
        return lowered
