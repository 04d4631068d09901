"""transaction — the values one SMTP conversation is given and gives back

Owns: Transaction, TransactionResult, Fault, Timeouts, and the error that carries a Fault.
Called by: queued/smtp_client.py and its parts, queued/connections.py, queued/classify.py, deliver.
Guarantees: pure, frozen values.
See: RFC 5321 §3.3 (transaction) and §4.5.3.2 (timeouts); Postfix smtp(8) for the time limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from shared.smtp_reply import Reply

type FaultKind = Literal["connect", "timeout", "closed", "protocol", "refused", "tls"]
type Phase = Literal["connect", "greeting", "helo", "mail", "rcpt", "data", "body", "dot"]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the peer may take for each step, in seconds; defaults are Postfix's."""

    connect: float = 30.0  # smtp_connect_timeout; TCP, and TLS where the port speaks it from the start
    greeting: float = 300.0  # smtp_helo_timeout, which covers both; RFC 5321 §4.5.3.2.1: 5 minutes
    helo: float = 300.0  # smtp_helo_timeout
    mail: float = 300.0  # smtp_mail_timeout
    rcpt: float = 300.0  # smtp_rcpt_timeout
    data: float = 120.0  # smtp_data_init_timeout
    body: float = 180.0  # smtp_data_xfer_timeout; for each 64 KiB, so a trickle ends as well
    dot: float = 600.0  # smtp_data_done_timeout
    rset: float = 20.0  # smtp_rset_timeout
    quit: float = 300.0  # smtp_quit_timeout; to get rid of our QUIT, its reply is not waited for


@dataclass(frozen=True, slots=True)
class Fault:
    """A conversation that broke, rather than a reply.

    kind: connect (no connection), timeout (time limit reached), closed (the peer hung up), protocol (the
        peer said something that is not SMTP), refused (the peer answered but will not talk; `reply` says
        what), tls (the handshake failed).
    phase: what was being waited for. RSET counts as mail: it goes out in front of MAIL.
    text: one printable line for logs and `last_error`.
    """

    kind: FaultKind
    phase: Phase
    text: str
    reply: Reply | None = None

    @property
    def uncertain(self) -> bool:
        """Whether the final dot was out: the peer may have taken the message (RFC 1047)."""
        return self.phase == "dot"


class ConversationError(Exception):
    """A conversation cannot go on; `fault` says why. Leaves `open` and the pool, never `send`."""

    def __init__(self, fault: Fault) -> None:
        """Carry `fault`."""
        super().__init__(fault.text)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Transaction:
    """One message for some recipients of one host.

    sender: reverse-path without angle brackets, "" for the null sender.
    recipients: forward-paths without angle brackets, in the order the replies come back.
    content: header and body, CRLF line ends, not dot-stuffed.
    prefix: header fields of ours that go before content, whole lines, such as signatures.
    smtputf8: the submitter declared SMTPUTF8 (RFC 6531 §3.4), so addresses and header may be UTF-8.
    body8bit: the submitter declared BODY=8BITMIME (RFC 6152 §2); octets above 127 say so by themselves.
    """

    sender: str
    recipients: tuple[str, ...]
    content: bytes
    smtputf8: bool = False
    body8bit: bool = False
    prefix: bytes = b""


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """What a transaction came to.

    mail, data, final: the replies to MAIL, DATA and the final dot; None where it did not come to that.
        `mail` also holds a refusal of ours that stands in for the peer's, when the peer need not be asked.
    recipients: for each recipient the reply that decides about it, or None when only `fault` does.
    fault: what broke the conversation before every recipient was decided, else None.
    """

    mail: Reply | None
    recipients: tuple[Reply | None, ...]
    data: Reply | None
    final: Reply | None
    fault: Fault | None
