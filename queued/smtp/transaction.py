"""transaction — the input and output values of one SMTP conversation

Owns: Transaction and how it is made of recipients in flight, TransactionResult, Fault, Timeouts, and the error that
    carries a Fault.
Guarantees: pure, frozen values. Those of the message as a whole are read from the first of its rows, because all rows
    agree.
See: RFC 5321 §3.3 (transaction) and §4.5.3.2 (timeouts); Postfix smtp(8) for the time limits; RFC 3461
    section 5.2.1 (notifications are the next hop's to make, where it can); RFC 8689 (REQUIRETLS); RFC 6710 (priority).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from queued.dsn import requested

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queued.tls.demanded import TlsAsked
    from queued.values import Body, Claimed
    from queued.waiting.watchdog import Phase
    from shared.mail.message import RecipientDsn
    from shared.mail.smtp_reply import Reply

type FaultKind = Literal["connect", "timeout", "closed", "protocol", "refused", "tls", "login"]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the peer may take for each step, in seconds; defaults are Postfix's."""

    connect: float = 30.0  # smtp_connect_timeout
    greeting: float = 300.0  # smtp_helo_timeout, which covers both; RFC 5321 §4.5.3.2.1: 5 minutes
    helo: float = 300.0  # smtp_helo_timeout
    starttls: float = 300.0  # smtp_starttls_timeout; for the reply to STARTTLS, and for the handshake
    auth: float = 300.0  # smtp_helo_timeout; for each reply while we log in
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
        what), tls (the handshake failed, or TLS as it is asked for cannot be had), login (we cannot log in until
        somebody mends something: credentials are refused, or what both could use cannot be had).
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


class Transaction(NamedTuple):
    """One message for some recipients of one host.

    sender: reverse-path without angle brackets, "" for the null sender.
    recipients: forward-paths without angle brackets, in the order the replies come back.
    content: header and body, CRLF line ends, not dot-stuffed.
    prefix: header fields of ours that go before content, whole lines, such as signatures.
    smtputf8: the submitter declared SMTPUTF8 (RFC 6531 §3.4), so addresses and header may be UTF-8.
    body8bit: the submitter declared BODY=8BITMIME (RFC 6152 §2); octets above 127 say so by themselves.
    ret, envid: what notifications about it are to be like (RFC 3461 §4.3, §4.4); None: nothing was said.
    dsn: for each recipient the requested notifications (RFC 3461 §4.1, §4.2); empty: none, for any of them.
    priority: RFC 6710 §4.1, -9 to 9.
    requiretls: the submitter declared REQUIRETLS (RFC 8689 §2).
    tls_optional: the header says TLS-Required: No (RFC 8689 §3).
    """

    sender: str
    recipients: tuple[str, ...]
    content: bytes
    smtputf8: bool = False
    body8bit: bool = False
    prefix: bytes = b""
    ret: str | None = None
    envid: str | None = None
    dsn: tuple[RecipientDsn | None, ...] = ()
    priority: int = 0
    requiretls: bool = False
    tls_optional: bool = False

    @staticmethod
    def of(claimed: Sequence[Claimed], body: Body, prefix: bytes, sender: str | None = None) -> Transaction:
        """The transaction for these recipients of one message.

        prefix: header fields that go before its content. sender: for MAIL FROM, where it is not the message's own.
        """
        first = claimed[0]
        recipients = tuple(map(str, (c.recipient for c in claimed)))
        by = str(first.sender or "") if sender is None else sender
        if not first.metadata:
            return Transaction(by, recipients, body.content, body.smtputf8, prefix=prefix, priority=first.priority)
        message = requested.of_message(first.metadata)
        wishes = tuple(requested.of_recipient(c.metadata) for c in claimed)
        return Transaction(
            sender=by,
            recipients=recipients,
            content=body.content,
            smtputf8=body.smtputf8,
            body8bit=first.metadata.get("_body") == "8BITMIME",
            prefix=prefix,
            ret=message.ret,
            envid=message.envid,
            dsn=wishes if any(wishes) else (),
            priority=first.priority,
            requiretls=requested.requiretls(first.metadata),
            tls_optional=requested.tls_optional(first.metadata),
        )

    @property
    def tls_asked(self) -> TlsAsked:
        """What it asks of TLS; REQUIRETLS keeps no notification back, for else it would be lost (RFC 8689 §5)."""
        if self.requiretls:  # beside it TLS-Required: No counts for nothing (RFC 8689 §4.1)
            return "usual" if self.sender == "" else "only"
        return "optional" if self.tls_optional else "usual"


class TransactionResult(NamedTuple):
    """The results of a transaction.

    mail, data, final: the replies to MAIL, DATA and the final dot; None where it did not come to that.
        `mail` also holds a refusal of ours in place of the peer's, when the peer need not be asked.
    recipients: for each recipient the reply that decides about it, or None when only `fault` does.
    fault: what broke the conversation before every recipient was decided, else None.
    tls: what was negotiated, such as `TLSv1.3 TLS_AES_256_GCM_SHA384 verified`; "none" for clear text; None where it
        did not come to a session.
    dsn: the peer offers DSN, so it sends the requested notifications from now on (RFC 3461 §5.2.1).
    finals: by LMTP, the replies to the final dot, one for each recipient accepted before (RFC 2033 §4.2); `final` is
        then one of them, a positive one if there is any.
    """

    mail: Reply | None
    recipients: tuple[Reply | None, ...]
    data: Reply | None
    final: Reply | None
    fault: Fault | None
    tls: str | None = None
    dsn: bool = False
    finals: tuple[Reply, ...] = ()
