"""envelope — MAIL and RCPT: the envelope

Owns: the one parsing of addresses, and the permission to send from and to them.
Guarantees: every address in the transaction is valid, allowed and decided by policy. A refused RCPT changes nothing.
Raises: Refused, which smtpd.connection.connection answers.
See: RFC 5321 sections 3.3, 4.1.1.2, 4.1.1.3, appendix C (source routes); RFC 6531 section 3.4.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from shared.mail import address
from smtpd import replies
from smtpd.envelope import parameters
from smtpd.envelope.transaction import Accepted, Transaction
from smtpd.replies import Refused
from smtpd.session import phases
from smtpd.session.receive import no_room

if TYPE_CHECKING:
    from shared.mail.message import Address
    from smtpd.session.session import Session

# A mailing names the same sender with every message, and the same recipients tomorrow.
_parse = lru_cache(maxsize=4096)(address.parse_given)
_FROM: Final = "FROM:"
_TO: Final = "TO:"
# An address literal, or what resolvers and mailers take for one: no top level domain is a number (RFC 1123 section
# 2.1), and inet_aton reads hexadecimal too.
_NUMBER: Final = re.compile(r"^\[|(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$")


async def mail(session: Session, argument: str) -> str:
    """RFC 5321 section 4.1.1.2."""
    if argument[: len(_FROM)].upper() != _FROM:
        raise Refused(replies.R501_SYNTAX.format(syntax="MAIL FROM:<address>"))
    if session.transaction is not None:
        raise Refused(replies.R503_IN_TRANSACTION)
    mailbox, words = _path(session, argument[len(_FROM) :], replies.R501_BAD_SENDER)
    try:
        session.transaction = await _begun(session, mailbox, words)
    except Refused as refusal:
        return session.refused(refusal.reply, mailbox)
    return replies.R250_OK


async def rcpt(session: Session, argument: str) -> str:
    """RFC 5321 section 4.1.1.3."""
    if argument[: len(_TO)].upper() != _TO:
        raise Refused(replies.R501_SYNTAX.format(syntax="RCPT TO:<address>"))
    transaction = session.transaction
    if transaction is None:
        # Commands pipelined after a MAIL that was refused for lack of room are refused by our trouble too: 4xx.
        raise Refused(session.full or no_room(session.service.spool) or replies.R503_NEED_MAIL)
    if session.chunks is not None:
        raise Refused(replies.R503_AFTER_BDAT)
    if _overshoots(session, transaction):
        return replies.R452_TOO_MANY_RECIPIENTS
    mailbox, words = _path(session, argument[len(_TO) :], replies.R501_BAD_RECIPIENT)
    try:
        transaction.recipients.append(await _accepted(session, transaction, mailbox, words))
    except Refused as refusal:
        return session.refused(refusal.reply, mailbox)
    return replies.R250_RECIPIENT_OK


def _overshoots(session: Session, transaction: Transaction) -> bool:
    """Whether this is one of the first excess recipients, which cost nothing. Only the very first is logged.

    A client that pipelines a long list cannot know better before it has sent all of it (RFC 5321 section 4.5.3.1.10).
    """
    limits = session.service.server.phases.rcptto
    if len(transaction.recipients) < limits.maxrecipients:
        return False
    transaction.excess += 1
    return 1 < transaction.excess <= limits.overshoot


async def _begun(session: Session, mailbox: str, words: list[str]) -> Transaction:
    limit = session.service.server.limits.messages
    if limit is not None and session.messages >= limit:
        raise Refused(replies.R452_TOO_MANY_MESSAGES)
    given = parameters.mail_parameters(words, session.offered(), datetime.now(UTC))
    # RFC 1870 section 6.1: one that may fit later is refused for now, and before it is sent.
    session.full = no_room(session.service.spool, given.size or 0)
    if session.full is not None:
        raise Refused(session.full)
    transaction = Transaction(_sender(mailbox, smtputf8=given.smtputf8), given)
    refused = await phases.at_mail(session, transaction)
    if refused is not None:
        raise Refused(refused)
    return transaction


async def _accepted(session: Session, transaction: Transaction, mailbox: str, words: list[str]) -> Accepted:
    if len(transaction.recipients) >= session.service.server.phases.rcptto.maxrecipients:
        raise Refused(replies.R452_TOO_MANY_RECIPIENTS)
    smtputf8 = transaction.parameters.smtputf8
    recipient = _recipient(session, mailbox, smtputf8=smtputf8)
    given = parameters.rcpt_parameters(words, session.offered(), smtputf8=smtputf8)
    decided = await phases.at_rcpt(session, recipient)
    if isinstance(decided, str):
        raise Refused(decided)
    return Accepted(decided, given)


def _path(session: Session, text: str, reply: str) -> tuple[str, list[str]]:
    """The mailbox as written, `<>` for none, and the words behind it; `reply` is for text that is not a path."""
    found = address.split_path(text)
    if found is None:
        raise Refused(reply.format(reason="no address"))
    if session.service.server.phases.rcptto.sourceroute == "reject" and text.lstrip().startswith("<@"):
        raise Refused(replies.R550_SOURCE_ROUTE)
    return found[0], parameters.split(found[1])


def _sender(mailbox: str, *, smtputf8: bool) -> Address | None:
    if mailbox == "<>":
        return None
    try:
        sender = _parse(mailbox)
    except address.AddressRefused as reason:
        raise Refused(replies.R501_BAD_SENDER.format(reason=reason)) from None
    if not smtputf8 and not mailbox.isascii():
        raise Refused(replies.R553_NEED_SMTPUTF8)
    return sender


def _recipient(session: Session, mailbox: str, *, smtputf8: bool) -> Address:
    """A recipient this client may send to. `<postmaster>` without a domain is ours (RFC 5321 section 4.5.1)."""
    if mailbox.lower() == "postmaster":
        mailbox = f"{mailbox}@{session.service.hostname}"
    try:
        recipient = _parse(mailbox)
    except address.DomainMissing:
        raise Refused(replies.R550_NO_DOMAIN) from None
    except address.AddressRefused as reason:
        raise Refused(replies.R501_BAD_RECIPIENT.format(reason=reason)) from None
    if not smtputf8 and not mailbox.isascii():
        raise Refused(replies.R553_NEED_SMTPUTF8)
    if not session.may_relay() and not session.service.suppressed.takes_reports(recipient):
        raise Refused(replies.R554_RELAY_DENIED)
    if _NUMBER.search(recipient.domain) and session.service.server.phases.rcptto.addressliteral == "reject":
        raise Refused(replies.R554_ADDRESS_LITERAL)
    return recipient
