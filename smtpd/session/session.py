"""session — the state of one SMTP session

Owns: the state of a session between two commands, and the operations of the connection that a command may use.
Guarantees: reset() leaves nothing of a transaction: no recipients, no content, no reserved memory.
See: RFC 5321 sections 3.1, 3.3, 4.1.1.5; RFC 3207 section 4.2 (STARTTLS discards the state).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shared.observe import events
from smtpd import replies
from smtpd.envelope.places import host
from smtpd.policy.recipient import in_networks, may_relay

if TYPE_CHECKING:
    from shared.config.smtpd.settings import Listener
    from smtpd.envelope.client import Client
    from smtpd.envelope.parameters import Offered
    from smtpd.envelope.transaction import Transaction
    from smtpd.policy.session import PolicySession
    from smtpd.rates.limits import RateVerdict
    from smtpd.session.body_budget import Content
    from smtpd.session.service import Service


class Intake(Protocol):
    """Takes octets that are no commands: the content after DATA, or one chunk of BDAT."""

    @property
    def wanted(self) -> int | None:
        """How many octets to feed it at most; None: all there are."""

    def feed(self, octets: bytes) -> bytes | None:
        """The octets after the end of it, possibly empty; None while the end has not come."""

    async def finish(self) -> str:
        """The end has come; the reply."""

    def close(self) -> None:
        """It is over, whether finished or not; may be called again."""


class ClientConnection(Protocol):
    """The connection as commands see it."""

    def take(self, intake: Intake) -> None:
        """The next octets go to `intake`, after this command's reply."""

    async def challenge(self, octets: bytes) -> bytes:
        """Send 334 and return the client's answer, both in base64 on the wire; raises Refused."""

    def encrypt(self) -> None:
        """After this command's reply, begin TLS and a session that knows nothing of this one."""

    def end(self) -> None:
        """After this command's reply, hang up."""


@dataclass(slots=True, eq=False)
class Session:
    """The state of one session."""

    service: Service
    listener: Listener
    client: Client
    line: ClientConnection
    policy: PolicySession
    transaction: Transaction | None = None
    full: str | None = None  # the reply to a MAIL refused for lack of room, and to what was pipelined after it
    chunks: Content | None = None  # of BDAT, from its first chunk to its last
    errors: int = 0  # since the last accepted message
    junk: int = 0  # commands that led nowhere, since then
    messages: int = 0  # transactions that ended, for MAILMAX
    relay: bool | None = None  # whether the client may relay; None: not asked yet
    counted: RateVerdict | None = None  # of the connection, to be given back to rates

    @property
    def trusted(self) -> bool:
        """Whether the client may use XCLIENT."""
        networks = self.listener.xclient.networks
        return bool(networks) and in_networks(self.client.address, networks)

    def may_relay(self) -> bool:
        """Whether the client may relay: it is authenticated, or its address is in a listed network."""
        if self.relay is None:
            self.relay = may_relay(self.client, self.service.config.relay.networks)
        return self.relay

    def stranger(self) -> str | None:
        """The host of a client that may not relay; None for one that may."""
        return None if self.may_relay() else host(self.client.address)

    def offered(self) -> Offered:
        """The parameters that MAIL and RCPT may have now."""
        return self.service.offered(self.client, relay=self.may_relay())

    def reset(self) -> None:
        """Forget the transaction (RFC 5321 section 4.1.1.5)."""
        self.transaction = self.full = None
        if self.chunks is not None:
            self.chunks.close()
            self.chunks = None

    def refused(self, reply: str, concerned: str | None = None) -> str:
        """Log a refusal and return its reply."""
        events.emit("session.refused", client=self.client.address, reply=reply, address=concerned)
        return reply

    def waste(self) -> None:
        """Count a command that led nowhere; beyond limits.junkcommands each is an error."""
        self.junk += 1
        self.errors += self.junk > self.service.server.limits.junkcommands

    def charge(self, reply: str) -> None:
        """Count the cost of a reply. A client that got 4xx may try again, but not without end on one connection."""
        if reply[0] == "5":
            self.errors += 1
        elif reply[0] == "4":
            excess = 0 if self.transaction is None else self.transaction.excess
            if reply != replies.R452_TOO_MANY_RECIPIENTS or excess > self.service.server.phases.rcptto.overshoot:
                self.waste()

    def fault(self, error: Exception) -> None:
        """Log a fault of ours; its id is all a client could ask about."""
        events.emit("session.error", client=self.client.address, id=secrets.token_hex(4), error=repr(error))

    def ended(self) -> None:
        """The connection is gone."""
        counted, self.counted = self.counted, None
        if counted is not None:
            self.service.rates.disconnected(counted)
