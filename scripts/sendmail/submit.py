"""submit — gives one message to smtpd, for all its recipients or for none

Owns: the SMTP conversation, and what each reply means for the caller.
Guarantees: accepted means that smtpd has answered 250 after the final dot. Where one recipient is refused nothing is
    sent, so that the caller may correct it and send again; if there are more recipients than smtpd takes at once, it is
    asked about all of them before it gets the message for the first. Only a connection that breaks between the final
    dot and its reply leaves in doubt whether the message was accepted.
See: RFC 5321, section 4.5.3.1.10 for many recipients; scripts/sendmail/spool.py for what is done where smtpd is away.
"""

from __future__ import annotations

import re
import smtplib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from scripts.sendmail.message import Outgoing
from shared.errors import cause

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONNECT, _REPLY, _FINAL = 10.0, 60.0, 300.0  # seconds
_DOT: Final = re.compile(rb"^\.", re.MULTILINE)
_OK, _GO_ON, _NO_MORE, _PERMANENT = 250, 354, 452, 500


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
    """smtpd cannot take the message now. all: the connection failed, so smtpd cannot take other messages either.

    left: the message with the recipients that smtpd has not accepted; None if it has accepted none.
    """

    why: str
    all: bool = False
    left: Outgoing | None = None


type Outcome = Accepted | Refused | Away


def submit(host: str, port: int, own: str, message: Outgoing) -> Outcome:
    """Submit it; `own`: our name for EHLO."""
    left = message
    try:
        with _session(host, port, own) as smtp:
            part = _asked(smtp, message)
            while isinstance(part, Outgoing):
                outcome = _content(smtp, part)
                if not isinstance(outcome, Accepted):
                    part = outcome
                    break
                left = _without(left, part)
                if not left.recipients:
                    return outcome
                part = _envelope(smtp, left)
    except (OSError, smtplib.SMTPException) as error:
        part = Away(cause(error), all=True)
    if left is message:
        return part
    return Away(part.reply, left=left) if isinstance(part, Refused) else replace(part, left=left)


@contextmanager
def _session(host: str, port: int, own: str) -> Iterator[smtplib.SMTP]:
    """A connection; its reply to QUIT changes nothing of what was answered before."""
    smtp = smtplib.SMTP(host, port, own, _CONNECT)
    try:
        assert smtp.sock is not None  # noqa: S101 - it is connected
        smtp.sock.settimeout(_REPLY)
        yield smtp
    finally:
        with suppress(OSError, smtplib.SMTPException):
            smtp.quit()
        smtp.close()


def _asked(smtp: smtplib.SMTP, message: Outgoing) -> Outgoing | Refused | Away:
    """Say the envelope once smtpd takes each recipient; the message for those it takes at once."""
    code, reply = smtp.ehlo()
    if code != _OK:
        return _judged(code, reply)
    first = part = _envelope(smtp, message)
    rest = message
    while isinstance(part, Outgoing) and (rest := _without(rest, part)).recipients:
        smtp.rset()
        part = _envelope(smtp, rest)
    if part is first or not isinstance(part, Outgoing):
        return part
    smtp.rset()
    return _envelope(smtp, message)


def _without(message: Outgoing, part: Outgoing) -> Outgoing:
    """The message for those recipients that come after the part's."""
    return replace(message, recipients=message.recipients[len(part.recipients) :])


def _envelope(smtp: smtplib.SMTP, message: Outgoing) -> Outgoing | Refused | Away:
    """Say the envelope; the message for those of its recipients, at least one, that smtpd takes at once."""
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
    notify = []
    if smtp.has_extn("dsn"):
        asked = {"RET": message.returned, "ENVID": message.envid}
        options += [f"{keyword}={value}" for keyword, value in asked.items() if value]
        notify = [f"NOTIFY={message.notify}"] if message.notify else []
    code, reply = smtp.mail(message.sender, options)
    if code != _OK:
        return _judged(code, reply)
    for number, recipient in enumerate(message.recipients):
        code, reply = smtp.rcpt(recipient, notify)
        if code == _NO_MORE and number:
            return replace(message, recipients=message.recipients[:number])
        if code not in {_OK, _OK + 1}:
            said = _judged(code, reply)
            return Refused(code, f"{recipient}: {said.reply}", recipient=True) if isinstance(said, Refused) else said
    return message


def _content(smtp: smtplib.SMTP, message: Outgoing) -> Outcome:
    """Send the content of the open transaction, and wait for the reply to its end."""
    code, reply = smtp.docmd("DATA")
    if code != _GO_ON:
        return _judged(code, reply)
    assert smtp.sock is not None  # noqa: S101 - it has just answered
    smtp.sock.settimeout(_FINAL)
    smtp.send(_DOT.sub(b"..", message.content))
    smtp.send(b".\r\n")
    code, reply = smtp.getreply()
    smtp.sock.settimeout(_REPLY)
    return Accepted(_text(reply)) if code == _OK else _judged(code, reply)


def _judged(code: int, reply: bytes) -> Refused | Away:
    return Refused(code, _text(reply)) if code >= _PERMANENT else Away(f"{code} {_text(reply)}")


def _text(reply: bytes) -> str:
    return " ".join(reply.decode("utf-8", "replace").split())
