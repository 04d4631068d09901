"""phases — asks policy and rates at each phase of a session

Owns: the questions at each phase, and the delay that an answer imposes on the client.
Guarantees: needs no SMTP session. A reply that is returned refuses; None or a value lets the client go on. A delay
    holds up only one client.
See: docs/reference/policy.md for the phases; smtpd.policy.session for the decisions.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from shared.observe import events
from smtpd import replies
from smtpd.message.sender_check import originator_fault
from smtpd.policy.lists import ListUnavailable

if TYPE_CHECKING:
    from uuid import UUID

    from shared.mail.message import Address, Recipient
    from smtpd.envelope.client import Client
    from smtpd.envelope.transaction import Transaction
    from smtpd.message.sender_check import Fault
    from smtpd.policy.decision import Decision
    from smtpd.policy.session import PolicySession
    from smtpd.rates.limits import RateVerdict
    from smtpd.session.service import Service


#: The refusal of a message for the fields that say who it is from.
NOT_OWN: Final[dict[Fault, str]] = {
    "from": replies.R550_FROM,
    "missing": replies.R550_NO_FROM,
    "sender": replies.R550_SENDER,
}


class Submitter(Protocol):
    """Who submits, an SMTP session or another entrance: what policy and rates are asked about."""

    @property
    def service(self) -> Service:
        """The server that it came to."""

    @property
    def client(self) -> Client:
        """The client."""

    @property
    def policy(self) -> PolicySession:
        """Policy's decisions so far."""

    counted: RateVerdict | None


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """Policy's decision about a content: a reply that refuses it, or its rows and the lines to put on top."""

    reply: str | None = None
    recipients: tuple[Recipient, ...] | None = None  # in the order of the transaction's; None: as they are
    headers: bytes = b""  # whole lines, each ending with CR LF
    foreign_from: bool = False  # From names an address that the user may not send as


async def counted(session: Submitter) -> str | None:
    """As soon as the client's address is known: rates, once."""
    if session.counted is None:
        session.counted = await session.service.rates.connected(session.client)
        if not session.counted.allowed:
            return session.counted.reply
    return None


async def at_connect(session: Submitter) -> str | None:
    """Before the greeting: rates, then policy."""
    return await counted(session) or await _said(await session.policy.connect())


async def at_helo(session: Submitter) -> str | None:
    """After HELO or EHLO."""
    return await _said(await session.policy.helo())


async def at_auth(session: Submitter) -> str | None:
    """After a proof, before 235."""
    return await _said(await session.policy.auth())


async def at_mail(session: Submitter, transaction: Transaction) -> str | None:
    """After a valid MAIL: the user's own senders, rates, policy."""
    user = session.client.user
    if user is not None and not user.may_send_as(transaction.sender):
        return replies.R553_SENDER
    verdict = await session.service.rates.hit("message", session.client)
    if not verdict.allowed:
        return verdict.reply
    return await _said(await session.policy.mailfrom(transaction.sender, transaction.parameters.size))


async def at_rcpt(session: Submitter, recipient: Address) -> Recipient | str:
    """After a valid RCPT of a client that may relay: the queue row as far as known, or the reply."""
    verdict = await session.service.rates.hit("recipient", session.client)
    if not verdict.allowed:
        return verdict.reply
    try:
        held = await session.service.suppressed.look(recipient)
    except ListUnavailable as error:
        events.emit("policy.list_unavailable", client=session.client.address, error=error)
        return replies.R451_LOCAL_ERROR
    if isinstance(held, str):
        return held
    decision, row = await session.policy.rcptto(recipient, held)
    return await _said(decision) or row


async def at_end(session: Submitter, content: bytes, message_id: UUID, *, adds_from: bool) -> PolicyResult:
    """After the content, once its form is found to be right. adds_from: whether we add the From that is missing."""
    user = session.client.user
    fault = None if user is None else originator_fault(user, content, adds_from=adds_from)
    if fault is not None and session.service.config.authentication.checkfrom:
        return PolicyResult(NOT_OWN[fault])
    end = await session.policy.eod(content, str(message_id))
    return PolicyResult(await _said(end.decision), end.recipients, end.headers, fault == "from")


async def _said(decision: Decision) -> str | None:
    """The reply of a decision, after the delay it asks for."""
    if decision.delay:
        await asyncio.sleep(decision.delay)
    return None if decision.accepted else decision.reply or replies.R451_LOCAL_ERROR
