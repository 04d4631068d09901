"""transaction — one mail transaction, from MAIL to the end of its content

Owns: the envelope under construction, with policy's decision about each recipient.
Guarantees: begins with a valid MAIL, ends with RSET, EHLO, STARTTLS, the end of data or the connection.
See: RFC 5321 section 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.mail.message import Address, Once, Recipient
    from smtpd.envelope.parameters import MailParameters, RcptParameters


@dataclass(slots=True)
class Accepted:
    """A recipient that was answered 250: the queue row it will be, and what the client asked for it."""

    recipient: Recipient
    parameters: RcptParameters


@dataclass(slots=True)
class Transaction:
    """One mail transaction (RFC 5321 section 3.3)."""

    sender: Address | None  # None is the null sender (RFC 5321 section 4.5.5)
    parameters: MailParameters
    recipients: list[Accepted] = field(default_factory=list)
    excess: int = 0  # recipients beyond the most there may be
    began: int = field(default_factory=time_ns)  # nanoseconds, for the trace
    metadata: dict[str, object] = field(default_factory=dict)  # of the submitter; what rules set comes before it
    once: Once | None = None
    content: bytes = b""  # as the client meant it, stuffed dots taken out (RFC 5321 section 4.5.2)
