"""session — what smtpd answers to each command

Owns: the translation between aiosmtpd's hooks and our words: addresses parsed once, relay and limits checked, each
    recipient decided by policy at RCPT.
Called by: aiosmtpd, through smtpd.protocol.Connection.
Guarantees: a hook that fails answers 451, never 5xx, and its id in the log is all a client could ask about.
See: RFC 5321 sections 3.3, 4.1.1; RFC 6531 section 3 (SMTPUTF8).
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from shared import address, events
from smtpd import replies
from smtpd.authenticate import Authenticator
from smtpd.policy import Origin, decide, may_relay
from smtpd.receive import Received, receive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiosmtpd.smtp import Session

    from shared.message import Address
    from shared.smtpd_config import Server, SmtpdConfig
    from shared.spool import Spool
    from smtpd.protocol import Connection, Transaction


class Hooks(Authenticator):
    """The hooks of one server; aiosmtpd finds them by name. One instance serves all its connections."""

    def __init__(self, config: SmtpdConfig, server: Server, hostname: str, spool: Spool) -> None:
        super().__init__(config.authentication.users)
        self._config = config
        self._server = server
        self._hostname = hostname
        self._spool = spool

    async def handle_EHLO(
        self, server: Connection, session: Session, envelope: Transaction, hostname: str, responses: Sequence[str]
    ) -> list[str]:
        """RFC 5321 section 4.1.1.1. PIPELINING (RFC 2920) is offered because DATA leaves what follows it unread."""
        if not hostname.isprintable():
            return [_refused(session, replies.R501_BAD_HELO, hostname)]
        session.host_name = hostname
        offered = [line for line in responses if not line.startswith("250-AUTH") or self.has_users]
        return [*offered[:-1], "250-PIPELINING", offered[-1]]

    async def handle_HELO(self, server: Connection, session: Session, envelope: Transaction, hostname: str) -> str:
        """RFC 5321 section 4.1.1.1, without extensions."""
        if not hostname.isprintable():
            return _refused(session, replies.R501_BAD_HELO, hostname)
        session.host_name = hostname
        return replies.R250_HELLO.format(hostname=self._hostname)

    async def handle_MAIL(
        self, server: Connection, session: Session, envelope: Transaction, sender: str, options: Sequence[str]
    ) -> str:
        """RFC 5321 section 4.1.1.2. The null sender arrives from aiosmtpd as the text `<>`."""
        parsed: Address | None = None
        if sender != "<>":
            try:
                parsed = address.parse(sender)
            except address.AddressRefused as reason:
                return _refused(session, replies.R501_BAD_SENDER.format(reason=reason), sender)
            if not sender.isascii() and not envelope.smtp_utf8:
                return _refused(session, replies.R553_NEED_SMTPUTF8, sender)
        envelope.sender = parsed
        envelope.mail_from = sender
        envelope.mail_options.extend(options)
        return replies.R250_OK

    async def handle_RCPT(
        self, server: Connection, session: Session, envelope: Transaction, recipient: str, options: Sequence[str]
    ) -> str:
        """RFC 5321 section 4.1.1.3. `<postmaster>` without a domain is ours (section 4.5.1)."""
        if len(envelope.recipients) >= self._server.phases.rcptto.maxrecipients:
            return _refused(session, replies.R452_TOO_MANY_RECIPIENTS, recipient)
        if recipient.lower() == "postmaster":
            recipient = f"{recipient}@{self._hostname}"
        try:
            parsed = address.parse(recipient)
        except address.DomainMissing:
            return _refused(session, replies.R550_NO_DOMAIN, recipient)
        except address.AddressRefused as reason:
            return _refused(session, replies.R501_BAD_RECIPIENT.format(reason=reason), recipient)
        if not recipient.isascii() and not envelope.smtp_utf8:
            return _refused(session, replies.R553_NEED_SMTPUTF8, recipient)
        origin = Origin(_client(session), _user(session), envelope.sender)
        if not may_relay(origin, self._config.relay.networks):
            return _refused(session, replies.R554_RELAY_DENIED, recipient)
        count = self._config.environment.database.partitions.count
        envelope.recipients.append(decide(origin, parsed, self._config.policy.rules, count))
        envelope.rcpt_tos.append(recipient)
        return replies.R250_RECIPIENT_OK

    async def handle_DATA(self, server: Connection, session: Session, envelope: Transaction) -> str:
        """The final dot has come (RFC 5321 section 4.1.1.4)."""
        return await receive(
            Received(
                sender=envelope.sender,
                recipients=tuple(envelope.recipients),
                content=envelope.content_octets,
                smtputf8=envelope.smtp_utf8,
                client=_client(session),
                helo=session.host_name or "",
                user=_user(session),
                extended=session.extended_smtp,
                tls=session.ssl is not None,
            ),
            self._spool,
            self._server.phases.data,
            self._server.id,
            self._hostname,
        )

    async def handle_exception(self, error: Exception) -> str:
        """Our own fault: the client keeps its message and learns nothing (RFC 5321 section 4.2.1, 4yz)."""
        events.emit("session.error", id=secrets.token_hex(4), error=repr(error))
        return replies.R451_LOCAL_ERROR


def _client(session: Session) -> str:
    """The peer's IP address."""
    return str(session.peer[0]) if session.peer else ""


def _user(session: Session) -> str | None:
    return session.login_data.decode() if session.authenticated and session.login_data else None


def _refused(session: Session, reply: str, concerned: str) -> str:
    events.emit("session.refused", client=_client(session), reply=reply, address=concerned)
    return reply
