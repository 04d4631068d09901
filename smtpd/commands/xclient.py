"""xclient — XCLIENT: a trusted client passes on another client's attributes

Owns: the attributes, and the session that begins again with them.
Guarantees: only clients in `listeners[].xclient.networks` may use it; a bad attribute changes nothing. Policy and
    rates see the named client, as if it had connected itself; restrictions of a user apply to the named user, and a
    disabled one is refused. A client whose address the proxy does not know has no address, and so none of the rights
    of the proxy's address; the rights of the proxy's certificate end with XCLIENT, whatever it names.
Raises: Refused, which smtpd.connection.connection answers.
See: https://www.postfix.org/XCLIENT_README.html; xtext: RFC 3461 section 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from shared.mail import xtext
from shared.security.saslprep import NotPrepared
from smtpd import replies
from smtpd.envelope import places
from smtpd.envelope.client import User
from smtpd.login.users import UsersUnavailable
from smtpd.replies import Refused
from smtpd.session import phases
from smtpd.session.service import IDENT, XCLIENT_NAMES

if TYPE_CHECKING:
    from smtpd.session.session import Session

_UNKNOWN: Final = frozenset({"[UNAVAILABLE]", "[TEMPUNAVAIL]"})
_LONGEST: Final = 255  # characters of a value: the longest host name
_PORTS: Final = 65536


@dataclass(slots=True)
class _Named:
    """The values of the attributes; None: not given."""

    address: str | None = None
    port: int | None = None
    name: str | None = None
    helo: str | None = None
    login: str | None = None
    extended: bool | None = None


async def xclient(session: Session, argument: str) -> str:
    """Take the attributes and greet again."""
    if not session.trusted:
        raise Refused(replies.R550_XCLIENT)
    if session.transaction is not None:
        raise Refused(replies.R503_IN_TRANSACTION)
    if not argument:
        raise Refused(replies.R501_SYNTAX.format(syntax="XCLIENT name=value ..."))
    named = _read(argument)
    user = await _user(session, named.login) if named.login else None
    client = session.client
    client.address = named.address or client.address
    client.port = client.port if named.port is None else named.port
    client.name, client.helo = named.name, named.helo
    if client.tls is not None:
        client.tls = replace(client.tls, subject=None, fingerprint=None, verified=False)
    client.extended = client.extended if named.extended is None else named.extended
    client.user = user
    session.ended()
    session.relay = None
    session.policy = session.service.policy_session(client)
    refused = await phases.at_connect(session)
    if refused is not None:
        session.line.end()
        raise Refused(refused)
    return replies.R220_GREETING.format(hostname=session.service.hostname, ident=IDENT)


async def _user(session: Session, login: str) -> User:
    """The user that the client speaks for, with its restrictions; a user without any where we do not know the name.

    Another server has checked the password, but users are disabled here.
    """
    authentication = session.service.authentication
    if authentication is None:
        return User(login)
    try:
        user = await authentication.by_word(login)
    except NotPrepared:
        raise _bad("LOGIN") from None
    except UsersUnavailable:
        raise Refused(replies.R454_AUTH_UNAVAILABLE) from None
    if user is None:
        raise Refused(replies.R550_XCLIENT_LOGIN)
    return user


def _read(argument: str) -> _Named:
    named = _Named()
    for word in argument.split():
        name, _, encoded = word.partition("=")
        name = name.upper()
        if name not in XCLIENT_NAMES:
            raise _bad(name[:20] if name.isascii() and name.isprintable() else "?")
        value = _value(name, encoded)
        if value is not None:
            _set(named, name, value)
        elif name == "ADDR":
            named.address, named.port = places.UNKNOWN, named.port or 0
    return named


def _value(name: str, encoded: str) -> str | None:
    try:
        value = xtext.decode(encoded)
    except ValueError:
        raise _bad(name) from None
    if not value or len(value) > _LONGEST or not value.isprintable():
        raise _bad(name)
    return None if value.upper() in _UNKNOWN else value


def _set(named: _Named, name: str, value: str) -> None:
    match name:
        case "ADDR":
            try:
                named.address = str(ip_address(value[5:] if value[:5].upper() == "IPV6:" else value))
            except ValueError:
                raise _bad(name) from None
        case "PORT":
            named.port = _port(name, value)
        case "DESTPORT":
            _port(name, value)
        case "NAME":
            named.name = value
        case "HELO":
            named.helo = value
        case "LOGIN":
            named.login = value
        case "PROTO":
            if value.upper() not in {"SMTP", "ESMTP"}:
                raise _bad(name)
            named.extended = value.upper() == "ESMTP"
        case _:
            pass  # DESTADDR: where the client connected to changes nothing for us


def _port(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and int(value) < _PORTS):
        raise _bad(name)
    return int(value)


def _bad(name: str) -> Refused:
    """For an attribute that cannot be read."""
    return Refused(replies.R501_XCLIENT.format(name=name))
