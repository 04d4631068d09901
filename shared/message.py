"""message — a message, its envelope and its recipients, as values

Owns: the frozen types that go from smtpd's session to the spool, and the making of message ids.
Called by: smtpd (builds them), shared.spool (writes them), tests.
Guarantees: an id is a UUIDv7 (RFC 9562 section 5.7): unique without asking anybody, and close to its neighbours in
    time, so that inserts stay at one end of the primary key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from uuid_utils.compat import uuid7

from shared.states import Status

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class Address:
    """One mailbox of an envelope: local-part as given, domain as given (RFC 5321 section 4.1.2)."""

    localpart: str
    domain: str

    def __str__(self) -> str:
        return f"{self.localpart}@{self.domain}"


@dataclass(frozen=True, slots=True)
class Recipient:
    """One recipient and what policy decided for it: one row of the queue."""

    address: Address
    partid: str
    status: Status = Status.DELIVER
    transportid: str = "default"
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submission:
    """A message with all its recipients, as it will be committed: all of it or nothing."""

    id: UUID
    sender: Address | None  # None is the null sender (RFC 5321 section 4.5.5)
    recipients: tuple[Recipient, ...]
    content: bytes
    smtputf8: bool
    senderip: str
    serverid: str
    senderhelo: str
    saslusername: str | None

    @property
    def held(self) -> bool:
        """Whether policy put any recipient on hold."""
        return any(recipient.status is Status.HOLD for recipient in self.recipients)


def new_message_id() -> UUID:
    """A fresh message id."""
    return uuid7()
