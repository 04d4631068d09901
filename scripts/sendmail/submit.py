"""submit — gives one message to smtpd, for all its recipients or for none

Owns: the SMTP conversation, and what each reply means for the caller.
Guarantees: accepted means that smtpd has answered 250 after the final dot. Where one recipient is refused nothing is
    sent, so that the caller may correct it and send again. Only a connection that breaks between the final dot and its
    reply leaves in doubt whether the message was accepted.
See: RFC 5321; scripts/sendmail/spool.py for what is done where smtpd is not there.
"""

from __future__ import annotations

import re
import smtplib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shared.errors import cause

if TYPE_CHECKING:
    from scripts.sendmail.message import Outgoing

_CONNECT, _REPLY, _FINAL = 10.0, 60.0, 300.0  # seconds
_DOT: Final = re.compile(rb"^\.", re.MULTILINE)
_OK, _GO_ON, _PERMANENT = 250, 354, 500


@dataclass(frozen=True, slots=True)
class Accepted:
    """smtpd has it."""

    reply: str


@dataclass(frozen=True, slots=True)
class Refused:
    """smtpd does not take it, and would not later. recipient: whether because of a recipient."""

    code: int
    reply: str
    recipient: bool = False


@dataclass(frozen=True, slots=True)
class Away:
    """smtpd cannot take it now. all: nor any other message, as there is no connection."""

    why: str
    all: bool = False


type Outcome = Accepted | Refused | Away


def submit(host: str, port: int, own: str, message: Outgoing) -> Outcome:
    """Submit it; `own`: our name for EHLO."""
    try:
        with smtplib.SMTP(host, port, own, _CONNECT) as smtp:
            assert smtp.sock is not None  # noqa: S101 - it is connected
            smtp.sock.settimeout(_REPLY)
            code, reply = smtp.ehlo()
            if code != _OK:
                return _judged(code, reply)
            if refused := _envelope(smtp, message):
                return refused
            code, reply = smtp.docmd("DATA")
            if code != _GO_ON:
                return _judged(code, reply)
            smtp.sock.settimeout(_FINAL)
            smtp.send(_DOT.sub(b"..", message.content))
            smtp.send(b".\r\n")
            code, reply = smtp.getreply()
            return Accepted(_text(reply)) if code == _OK else _judged(code, reply)
    except (OSError, smtplib.SMTPException) as error:
        return Away(cause(error), all=True)


def _envelope(smtp: smtplib.SMTP, message: Outgoing) -> Outcome | None:
    """Say the envelope; None when all of it was taken."""
    options = []
    if message.eight_bits and smtp.has_extn("8bitmime"):
        options.append("BODY=8BITMIME")
    if message.smtputf8:
        if not smtp.has_extn("smtputf8"):
            return Refused(
                _PERMANENT + 53, "an address needs SMTPUTF8, which the server does not offer", recipient=True
            )
        smtp.command_encoding = "utf-8"
        options.append("SMTPUTF8")
    code, reply = smtp.mail(message.sender, options)
    if code != _OK:
        return _judged(code, reply)
    for recipient in message.recipients:
        code, reply = smtp.rcpt(recipient)
        if code not in {_OK, _OK + 1}:
            said = _judged(code, reply)
            return Refused(code, f"{recipient}: {said.reply}", recipient=True) if isinstance(said, Refused) else said
    return None


def _judged(code: int, reply: bytes) -> Refused | Away:
    return Refused(code, _text(reply)) if code >= _PERMANENT else Away(f"{code} {_text(reply)}")


def _text(reply: bytes) -> str:
    return " ".join(reply.decode("utf-8", "replace").split())
