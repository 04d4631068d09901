"""table — the commands of SMTP, by verb

Owns: the table: the function for each verb, the rules that apply to it, and the check for clients out of turn.
Guarantees: a verb that is not in the table gets 500.
See: RFC 5321 section 4.1.1; RFC 2920 section 3.1 (last of a group); Postfix smtpd_cmd_table, whose flags these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from smtpd import replies
from smtpd.commands import auth, data, envelope, hello, other, starttls, xclient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from smtpd.session.session import Session


@dataclass(frozen=True, slots=True)
class Command:
    """One verb."""

    answer: Callable[[Session, str], Awaitable[str | None]]  # takes the argument; None: no reply is due yet
    syntax: str
    last: bool = False  # nothing may be sent behind it before its reply has come
    junk: bool = False  # leads nowhere by itself
    plain: bool = False  # allowed before STARTTLS where TLS is required (RFC 3207 section 4)
    greeted: bool = True  # only after HELO or EHLO (RFC 5321 section 4.1.4)


COMMANDS: Final = {
    b"HELO": Command(hello.helo, "HELO host", last=True, junk=True, plain=True, greeted=False),
    b"EHLO": Command(hello.ehlo, "EHLO host", last=True, junk=True, plain=True, greeted=False),
    b"MAIL": Command(envelope.mail, "MAIL FROM:<address> [parameters]"),
    b"RCPT": Command(envelope.rcpt, "RCPT TO:<address> [parameters]"),
    b"DATA": Command(data.data, "DATA", last=True),
    b"BDAT": Command(data.bdat, "BDAT size [LAST]"),
    b"RSET": Command(other.rset, "RSET", junk=True, greeted=False),
    b"NOOP": Command(other.noop, "NOOP [text]", last=True, junk=True, plain=True, greeted=False),
    b"QUIT": Command(other.quit_, "QUIT", plain=True, greeted=False),
    b"VRFY": Command(other.vrfy, "VRFY address", last=True, junk=True, greeted=False),
    b"EXPN": Command(other.expn, "EXPN list", last=True, junk=True, greeted=False),
    b"ETRN": Command(other.etrn, "ETRN host", junk=True, greeted=False),
    b"HELP": Command(other.help_, "HELP", junk=True, greeted=False),
    b"STARTTLS": Command(starttls.starttls, "STARTTLS", last=True, plain=True),
    b"AUTH": Command(auth.auth, "AUTH mechanism [response]", last=True),
    b"XCLIENT": Command(xclient.xclient, "XCLIENT name=value ...", plain=True, greeted=False),
}
# Not SMTP: an attacker makes a web browser talk to us (Postfix smtpd_forbidden_commands).
FORBIDDEN: Final = frozenset({b"CONNECT", b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS"})


def out_of_turn(command: Command, session: Session, behind: int) -> str | None:
    """Why a command, with so many octets behind it, may not be given now, whatever it is about."""
    server = session.service.server
    if command.last and behind:
        allowed = server.phases.connect.unauthpipelining == "allow" and command.answer is not starttls.starttls
        if not allowed:
            return replies.R554_PIPELINING
    if command.junk:
        session.waste()
    if not command.plain and session.client.tls is None and server.tls is not None and server.tls.required:
        return replies.R530_NEED_TLS
    if command.greeted and session.client.helo is None:
        return replies.R503_NEED_HELLO
    return None
