"""other — RSET, NOOP, QUIT, VRFY, EXPN, ETRN and HELP

Owns: the commands that carry no mail.
Guarantees: none of them reveals whether an address exists (RFC 5321 section 7.3).
See: RFC 5321 sections 3.5, 4.1.1.5 to 4.1.1.10; RFC 1985 (ETRN).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from smtpd import replies

if TYPE_CHECKING:
    from smtpd.session.session import Session

_HELP = "HELO EHLO STARTTLS AUTH MAIL RCPT DATA BDAT RSET NOOP VRFY HELP QUIT"


async def rset(session: Session, argument: str) -> str:
    """RFC 5321 section 4.1.1.5."""
    if argument:
        return replies.R501_SYNTAX.format(syntax="RSET")
    session.reset()
    return replies.R250_RESET


async def noop(session: Session, argument: str) -> str:
    """RFC 5321 section 4.1.1.9; the rest of the line is ignored."""
    del session, argument
    return replies.R250_NOOP


async def quit_(session: Session, argument: str) -> str:
    """RFC 5321 section 4.1.1.10; an argument is ignored, because the client wants to leave."""
    del argument
    session.reset()
    return replies.R221_BYE


async def vrfy(session: Session, argument: str) -> str:
    """RFC 5321 section 3.5.3: 252 says nothing about the address."""
    del session
    return replies.R252_CANNOT_VERIFY if argument else replies.R501_SYNTAX.format(syntax="VRFY address")


async def expn(session: Session, argument: str) -> str:
    """RFC 5321 section 3.5.2: we expand no lists."""
    del session, argument
    return replies.R502_NOT_IMPLEMENTED


async def etrn(session: Session, argument: str) -> str:
    """RFC 1985: no mail waits here for a client to fetch."""
    del session, argument
    return replies.R502_NOT_IMPLEMENTED


async def help_(session: Session, argument: str) -> str:
    """RFC 5321 section 4.1.1.8."""
    del session, argument
    return replies.R214_HELP.format(commands=_HELP)
