"""starttls — STARTTLS

Owns: whether TLS may begin; smtpd.connection.connection does it after the reply.
Guarantees: nothing that came in the clear is processed under TLS: octets behind the command end the connection
    (smtpd.connection.connection), and the session that follows knows nothing of the one before.
See: RFC 3207 section 4; CVE-2011-0411.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smtpd import replies

if TYPE_CHECKING:
    from smtpd.session.session import Session


async def starttls(session: Session, argument: str) -> str:
    """RFC 3207 section 4."""
    if argument:
        return replies.R501_SYNTAX.format(syntax="STARTTLS")
    if session.client.tls is not None:
        return replies.R503_TLS_ACTIVE
    if session.service.certificates is None or session.listener.tls != "starttls":
        return replies.R454_NO_TLS
    if session.transaction is not None:
        return replies.R503_IN_TRANSACTION
    session.line.encrypt()
    return replies.R220_START_TLS
