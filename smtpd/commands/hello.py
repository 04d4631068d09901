"""hello — HELO and EHLO

Owns: the client's own name, and the extensions that we offer.
Guarantees: a name that could not be stored is refused at once; either command ends a transaction.
See: RFC 5321 sections 4.1.1.1, 4.1.4; section 4.5.3.1.2 (255 octets).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from smtpd import replies
from smtpd.session import phases

if TYPE_CHECKING:
    from smtpd.session.session import Session

_NAME_LIMIT: Final = 255  # RFC 5321 section 4.5.3.1.2


async def helo(session: Session, argument: str) -> str:
    """RFC 5321 section 4.1.1.1, without extensions."""
    refused = await _introduced(session, argument, extended=False)
    return refused or replies.R250_HELLO.format(hostname=session.service.hostname)


async def ehlo(session: Session, argument: str) -> str:
    """RFC 5321 section 4.1.1.1."""
    refused = await _introduced(session, argument, extended=True)
    if refused is not None:
        return refused
    relay = session.may_relay()
    return session.service.hello(session.client, session.listener, trusted=session.trusted, relay=relay)


async def _introduced(session: Session, name: str, *, extended: bool) -> str | None:
    """Take the name; the reply when it is refused."""
    if not name:
        return replies.R501_SYNTAX.format(syntax="EHLO host" if extended else "HELO host")
    if not name.isprintable() or len(name) > _NAME_LIMIT or " " in name:
        return session.refused(replies.R501_BAD_HELO, name[:_NAME_LIMIT])
    session.reset()
    client = session.client
    before = client.helo, client.extended
    client.helo, client.extended = name, extended
    refused = await phases.at_helo(session)
    if refused is not None:
        client.helo, client.extended = before
        return session.refused(refused, name)
    return None
