"""message — one token as the message that is queued

Guarantees: the same token, templates and key give the same octets, Date, Message-ID and boundary included, so that a
    token that is handed over again is known by its key of idempotency. No value from an account can add a field.
Raises: AddressRefused for an address that cannot be sent to.
See: RFC 5322; RFC 2046 section 5.1.4 (alternative); RFC 3834 section 5 (Auto-Submitted).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import TYPE_CHECKING

from collect.templates import values
from collect.token import RECOVERY
from shared.mail.address import parse, parse_shown
from shared.mail.header_policy import ASCII, UTF8, mailbox

if TYPE_CHECKING:
    from collect.templates import Templates
    from collect.token import Signer, Token
    from shared.config.collect.settings import AccountMail

_URGENT, _NORMAL = 5, 0


@dataclass(frozen=True, slots=True)
class Message:
    """What is queued for one token."""

    recipient: str
    content: bytes
    key: str
    priority: int
    jobid: str


class Composer:
    """Makes messages of tokens."""

    def __init__(self, mail: AccountMail, templates: Templates, signer: Signer, installation: str = "preview") -> None:
        """`installation`: what tells these accounts' tokens from others' in the same queue."""
        assert mail.sender is not None  # noqa: S101 - the daemon and `accounts preview` refuse to start without
        self._mail = mail
        self.sender = mail.sender
        self._templates = templates
        self._signer = signer
        self._installation = installation

    def link(self, token: Token) -> str:
        """The page that the reader opens."""
        page = self._mail.recover if token.action == RECOVERY else self._mail.activate
        return (page or "").replace("{token}", self._signer(token))

    def __call__(self, token: Token, language: str | None = None) -> Message:
        """The message for a token, in the language of its account or in this one."""
        recipient = parse_shown(token.email)
        text = self._templates.render(token.action, language or token.language, values(token, self.link(token)))
        sender = parse(self.sender)
        message = EmailMessage(ASCII if f"{sender}{recipient}".isascii() else UTF8)
        message["From"] = mailbox(self._mail.name or "", sender)
        message["To"] = mailbox("", recipient)
        message["Subject"] = text.subject
        message["Date"] = datetime.fromtimestamp(token.created_at, UTC)
        name = f"{token.id}.{self._installation}"
        message["Message-ID"] = f"<{name}@{sender.domain}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text.plain)
        message.add_alternative(text.html, subtype="html")
        message.set_boundary(f"=_{name}")
        return Message(
            recipient=str(recipient),
            content=message.as_bytes(),
            key=f"account-token:{self._installation}:{token.id}",
            priority=_URGENT if token.action == RECOVERY else _NORMAL,
            jobid=f"account {token.action}",
        )
