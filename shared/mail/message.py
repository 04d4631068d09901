"""message — a message, its envelope and its recipients, as values

Owns: the frozen types that go from smtpd's session to the spool, the part of them that becomes queue.metadata, and the
    making of message ids.
Guarantees: an id is a UUIDv7 (RFC 9562 section 5.7): unique without coordination, and close to its neighbours in time,
    so that inserts stay at one end of the primary key.
See: sql/README.md, "Reserved metadata".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from uuid_utils.compat import uuid7

from shared.mail.states import Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

type Body = Literal["7BIT", "8BITMIME", "BINARYMIME"]  # RFC 6152, RFC 3030

#: The keys of queue.metadata that Pillarbox uses; policy, clients and operators may not set them freely.
#: tests/layout/test_reserved_metadata.py compares them with sql/README.md.
RESERVED: Final = frozenset(
    {"_partid", "_quarantineid", "_holdreason", "_policyrule", "_requeued", "_dsn", "_body", "_requiretls"}
    | {"_tlsrequired", "_futurerelease", "_traceparent", "_copyof", "_heldat", "_foreignfrom", "_recovered"}
)


@dataclass(frozen=True, slots=True)
class Address:
    """One mailbox of an envelope: local-part as given, domain as given (RFC 5321 section 4.1.2)."""

    localpart: str
    domain: str

    def __str__(self) -> str:
        return f"{self.localpart}@{self.domain}"


@dataclass(frozen=True, slots=True)
class RecipientDsn:
    """The notifications that the submitter wants for one recipient (RFC 3461 sections 4.1, 4.2); None: not given."""

    notify: frozenset[str] | None = None  # of NEVER, SUCCESS, FAILURE, DELAY
    orcpt: tuple[str, str] | None = None  # type and address, decoded


@dataclass(frozen=True, slots=True)
class MessageDsn:
    """The submitter's wishes for every notification of a message (RFC 3461 sections 4.3, 4.4)."""

    ret: str | None = None  # FULL or HDRS
    envid: str | None = None  # decoded


@dataclass(frozen=True, slots=True)
class Recipient:
    """One recipient and what policy decided for it: one row of the queue."""

    address: Address
    partid: str
    status: Status = Status.DELIVER
    transportid: str = "default"
    metadata: Mapping[str, object] = field(default_factory=dict)
    priority: int | None = None  # -9 to 9; None: the message's
    dsn: RecipientDsn | None = None


@dataclass(frozen=True, slots=True)
class Once:
    """An idempotency key: what is submitted under it again is not queued again."""

    application: str  # whose key it is
    key: str
    fingerprint: bytes  # of everything that was asked for with it


@dataclass(frozen=True, slots=True)
class Submission:
    """A message with all its recipients, as it will be committed: all of it or nothing.

    What is stored is `trace` and then `content`: kept apart so that a large content need not be copied.
    """

    id: UUID
    sender: Address | None  # None is the null sender (RFC 5321 section 4.5.5)
    recipients: tuple[Recipient, ...]
    content: bytes
    smtputf8: bool
    senderip: str
    serverid: str
    senderhelo: str
    saslusername: str | None
    trace: bytes = b""  # our header fields, put in front
    priority: int = 0  # -9 to 9 (RFC 6710)
    not_before: datetime | None = None  # no try before this time (RFC 4865); None: at once
    release_request: str | None = None  # `for;60` or `until;2026-…`, for notifications (RFC 4865 section 5.1.2)
    dsn: MessageDsn | None = None
    body: Body = "7BIT"  # as declared
    requiretls: bool = False  # RFC 8689: only over TLS, or not at all
    traceparent: str | None = None  # the trace that follows it (W3C Trace Context)
    foreign_from: bool = False  # From names an address that the user may not send as
    tls_optional: bool = False  # the header said TLS-Required: No (RFC 8689 section 3)
    msgid: str | None = None  # the header's Message-ID, without angle brackets (shared/mail/found_by.py)
    subject: str | None = None  # the header's Subject, decoded; None: absent, or not to be kept
    once: Once | None = None

    @property
    def size(self) -> int:
        """Octets as stored."""
        return len(self.trace) + len(self.content)

    @property
    def held(self) -> bool:
        """Whether policy put any recipient on hold."""
        return any(recipient.status is Status.HOLD for recipient in self.recipients)


def metadata(submission: Submission, recipient: Recipient) -> dict[str, object]:
    """queue.metadata of one row: what policy set, and under reserved keys what delivery will have to know."""
    row: dict[str, object] = {**recipient.metadata, "_partid": recipient.partid}
    of_message, of_recipient = submission.dsn, recipient.dsn
    if of_message is not None or of_recipient is not None:
        row["_dsn"] = _dsn(of_message or MessageDsn(), of_recipient or RecipientDsn())
    if submission.body != "7BIT":
        row["_body"] = submission.body
    if submission.foreign_from:
        row["_foreignfrom"] = True
    if submission.requiretls:
        row["_requiretls"] = True
    elif submission.tls_optional:  # RFC 8689 section 4.1: REQUIRETLS wins
        row["_tlsrequired"] = "no"
    if submission.traceparent is not None:
        row["_traceparent"] = submission.traceparent
    if submission.release_request is not None:
        row["_futurerelease"] = submission.release_request
    return row


def _dsn(of_message: MessageDsn, of_recipient: RecipientDsn) -> dict[str, object]:
    asked: dict[str, object] = {}
    if of_message.ret is not None:
        asked["ret"] = of_message.ret
    if of_message.envid is not None:
        asked["envid"] = of_message.envid
    if of_recipient.notify is not None:
        asked["notify"] = sorted(of_recipient.notify)
    if of_recipient.orcpt is not None:
        asked["orcpt"] = list(of_recipient.orcpt)
    return asked


def new_message_id() -> UUID:
    """A fresh message id."""
    return uuid7()
