"""auth — AUTH: the lines of an authentication

Owns: when AUTH may be given, its syntax, and the session's state afterwards; smtpd.login.authenticate decides about the
    proof.
Guarantees: one reply to each AUTH, also when the client breaks off. The client's data is never logged here.
Raises: Refused, which smtpd.connection.connection answers.
See: RFC 4954 section 4.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING

from smtpd import replies
from smtpd.replies import Refused
from smtpd.session import phases

if TYPE_CHECKING:
    from smtpd.session.session import Session


async def auth(session: Session, argument: str) -> str:
    """RFC 4954 section 4."""
    client, authentication = session.client, session.service.authentication
    if authentication is None:
        raise Refused(replies.R502_NOT_IMPLEMENTED)
    if not client.extended:
        raise Refused(replies.R503_NEED_EHLO)
    if client.user is not None:
        raise Refused(replies.R503_AUTHENTICATED)
    if session.transaction is not None:
        raise Refused(replies.R503_IN_TRANSACTION)
    mechanism, _, response = argument.partition(" ")
    if not mechanism:
        raise Refused(replies.R501_SYNTAX.format(syntax="AUTH mechanism [response]"))
    verdict = await authentication.authenticate(mechanism, _initial(response.strip()), session.line.challenge, client)
    if verdict.user is not None:
        client.user = verdict.user
        session.relay = None
        refused = await phases.at_auth(session)
        if refused is not None:
            client.user = None
            return session.refused(refused, verdict.user.name)
    return verdict.reply


def decoded(text: str | bytes) -> bytes:
    """The octets of a response, or Refused: `*` gives up, anything but base64 cannot be read."""
    if text in {"*", b"*"}:
        raise Refused(replies.R501_CANCELLED)
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise Refused(replies.R501_BASE64) from None


def _initial(response: str) -> bytes | None:
    """RFC 4954 section 4: `=` is an empty initial response, nothing is none."""
    if not response:
        return None
    return b"" if response == "=" else decoded(response)
