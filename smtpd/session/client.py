"""client — who is at the other end of a connection

Owns: the value that every part of smtpd reads about the client: address, name, greeting, TLS and user.
Guarantees: what stands here was seen by us or said by a proxy we trust; what the client only claims is `helo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smtpd.login.users import User
    from smtpd.tls import TlsFacts


@dataclass(slots=True)
class Client:
    """Who is at the other end of a connection, as far as it has said and proven so far."""

    address: (
        str  # IP address, after PROXY or XCLIENT; no zone, an IPv4-mapped one as IPv4; or smtpd.session.places.UNKNOWN
    )
    port: int
    listener: str  # servers[].id
    helo: str | None = None
    extended: bool = False  # EHLO, not HELO
    user: User | None = None  # authenticated
    tls: TlsFacts | None = None  # the TLS session, None in the clear
    name: str | None = None  # reverse DNS name where known (XCLIENT NAME)
