"""client — the client at the other end of a connection

Owns: the value that every part of smtpd reads about the client: address, name, greeting, TLS and user.
Guarantees: its fields come from our own observation or from a trusted proxy; only `helo` is the client's own claim.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.mail.message import Address
    from shared.security.scram_keys import ScramKeys
    from smtpd.tls import TlsFacts


@dataclass(slots=True)
class Client:
    """The client at the other end of a connection, as far as it has said and proven so far."""

    address: (
        str  # IP address, after PROXY or XCLIENT; no zone, an IPv4-mapped one as IPv4; or smtpd.envelope.places.UNKNOWN
    )
    port: int
    listener: str  # servers[].id
    helo: str | None = None
    extended: bool = False  # EHLO, not HELO
    user: User | None = None  # authenticated
    tls: TlsFacts | None = None  # the TLS session, None in the clear
    name: str | None = None  # reverse DNS name where known (XCLIENT NAME)
    protocol: str | None = None  # what Received says in place of SMTP and its kin


@dataclass(frozen=True, slots=True)
class User:
    """A user that may submit mail. A field that is not given does not restrict."""

    name: str
    argon2: str | None = field(default=None, repr=False)
    scram: ScramKeys | None = field(default=None, repr=False)
    disabled: bool = False
    senders: Sequence[str] = ()  # addresses, domains, *.domains, "" for the null sender; empty: any sender
    messages: int | None = None  # per hour
    recipients: int | None = None  # per hour
    partition: str | None = None
    transport: str | None = None
    hold: str | None = None  # quarantine id

    def may_send_as(self, sender: Address | None) -> bool:
        """Whether this envelope sender (None: the null sender) is among the user's own."""
        if not self.senders:
            return True
        if sender is None:
            return "" in self.senders
        own = {str(sender), sender.domain}
        own.update(f"*.{parent}" for parent in _parents(sender.domain))
        return not own.isdisjoint(self.senders)


def _parents(domain: str) -> list[str]:
    labels = domain.split(".")
    return [".".join(labels[index:]) for index in range(1, len(labels))]
