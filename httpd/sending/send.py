"""send — one message from its request to its COMMIT: envelope, policy, content, submission

Owns: the order of the steps, and the status that each of smtpd's replies is over HTTP.
Guarantees: 202 follows COMMIT, for all recipients together: it is said where, and only where, smtpd's rooms say 250. A
    message whose recipients are not all accepted is refused as a whole. Our own trouble is 503.
See: smtpd/session/phases.py and receive.py, which decide; RFC 5321 section 4.2.1 (the kinds of replies).
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from uuid import UUID

from httpd.problems import Fault, Problem, unavailable
from httpd.sending.compose import compose
from httpd.sending.forms import ahead
from httpd.sending.mailbox import read_mailbox
from shared.errors import KeyBusy, KeyUsed
from shared.mail.message import new_message_id
from smtpd import replies
from smtpd.envelope.client import Client
from smtpd.envelope.parameters import MailParameters, RcptParameters
from smtpd.envelope.transaction import Accepted, Transaction
from smtpd.message.trace_headers import own_msgid
from smtpd.rates.limits import ALLOWED
from smtpd.session import phases
from smtpd.session.receive import no_room, not_ready, receive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from httpd.access.caller import Caller
    from httpd.sending.forms import Send
    from httpd.sending.mailbox import Mailbox
    from shared.mail.message import Address, Once
    from smtpd.policy.session import PolicySession
    from smtpd.rates.limits import RateVerdict
    from smtpd.session.service import Service
    from smtpd.tls import TlsFacts

_LARGE: Final = 1 << 18  # octets of parts from which on they are composed beside the event loop
#: Composing takes five times as much memory as the message, and in several threads at once no less time.
_COMPOSER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compose")
_REPLY: Final = re.compile(r"(\d)(\d\d)[ -](?:(\d\.\d{1,3}\.\d{1,3}) )?(.*)", re.DOTALL)
_RATE: Final = 60.0  # seconds after which a client over a limit may try again
_IN_BRACKETS: Final = re.compile(r"[0-9A-Fa-f:.]+")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from."""

    caller: Caller
    address: str
    tls: TlsFacts | None


@dataclass(slots=True)
class Submitter:
    """What policy and rates are asked about (smtpd.session.phases.Submitter)."""

    service: Service
    client: Client
    policy: PolicySession
    counted: RateVerdict | None = ALLOWED  # connections are httpd's own to count


@dataclass(frozen=True, slots=True)
class Enveloped:
    """A message with its envelope."""

    sender: Address | None
    recipients: Sequence[tuple[str, Address]]  # with their places in the request
    content: bytes
    metadata: dict[str, object]
    scheduled_at: datetime | None = None
    priority: int = 0


async def enveloped(send: Send, hostname: str, content: bytes | None = None) -> Enveloped:
    """The message of a request, composed if it came in parts; `content`: what came by itself."""
    sender = read_mailbox(send.sender).address
    recipients = [(place, mailbox.address) for place, mailbox in send.recipients]
    if content is None and send.raw is not None:
        content = b64decode(send.raw)
    if content is None:
        shown = [read_mailbox(send.sender), *(mailbox for _, mailbox in send.recipients)]
        arguments = (send, own_msgid(new_message_id(), hostname), datetime.now(UTC))
        international = _international(shown)
        if _size(send) < _LARGE:
            content = compose(*arguments, international=international)
        else:
            composing = partial(compose, *arguments, international=international)
            content = await asyncio.get_running_loop().run_in_executor(_COMPOSER, composing)
    return Enveloped(sender, recipients, content, send.own_metadata, send.scheduled_at, send.priority)


async def submit(service: Service, origin: Origin, mail: Enveloped, once: Once | None = None) -> UUID:
    """The number of the message once it is committed; Problem if it is not."""
    client = Client(
        origin.address,
        0,
        service.server.id,
        helo=_literal(origin.address),
        extended=True,
        user=origin.caller.user,
        tls=origin.tls,
        protocol="HTTP" if origin.tls is None else "HTTPS",
    )
    submitter = Submitter(service, client, service.policy_session(client))
    size = len(mail.content)
    limit = service.server.phases.data.maxsize
    if size > limit:
        raise Problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the message is too large: {size}; allowed: up to {limit} octets"
        )
    _go_on(no_room(service.spool, size) or not_ready(service.spool, size))
    for phase in (phases.at_connect, phases.at_helo):
        _go_on(await phase(submitter))
    transaction = Transaction(mail.sender, _parameters(service, mail), metadata=mail.metadata, once=once)
    _go_on(await phases.at_mail(submitter, transaction), "from")
    await _recipients(submitter, transaction, mail.recipients)
    transaction.content = mail.content
    try:
        reply = await receive(submitter, transaction)
    except KeyUsed as used:
        if once is not None and used.fingerprint == once.fingerprint:
            return used.message
        raise other_body(used.message) from None
    except KeyBusy:
        raise under_way() from None
    _go_on(None if reply.startswith("250") else reply)
    return UUID(reply.rpartition(" ")[2])


def other_body(message: UUID) -> Problem:
    """The refusal of a key that was used for another request."""
    detail = f"the Idempotency-Key was used for another request, whose message is {message}; allowed: the same request, or another key"  # noqa: E501
    return Problem(HTTPStatus.CONFLICT, detail, code="idempotency_key_reused")


def under_way() -> Problem:
    """The refusal of a key that a request under way has."""
    detail = "a request with this Idempotency-Key is under way; try again later"
    return Problem(HTTPStatus.CONFLICT, detail, code="idempotency_key_busy", retry_after=1)


async def _recipients(
    submitter: Submitter, transaction: Transaction, recipients: Sequence[tuple[str, Address]]
) -> None:
    """Ask about each recipient; Problem where one is refused."""
    rcptto = submitter.service.server.phases.rcptto
    most = rcptto.maxrecipients
    if not 0 < len(recipients) <= most:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{len(recipients)} is not a number of recipients that is taken; allowed: 1 to {most}")  # fmt: skip  # noqa: E501
    refused: list[tuple[str, str]] = []
    for place, address in recipients:
        if address.domain.startswith("[") and rcptto.addressliteral == "reject":
            decided: object = replies.R554_ADDRESS_LITERAL
        else:
            decided = await phases.at_rcpt(submitter, address)
        if isinstance(decided, str):
            refused.append((place, decided))
            if decided.startswith("4"):
                break
        else:
            transaction.recipients.append(Accepted(decided, RcptParameters()))  # type: ignore[arg-type]
    if refused:
        faults = [Fault(where=f"body.{place}", why=_words(reply)) for place, reply in refused]
        raise _problem(refused[-1][1] if refused[-1][1].startswith("4") else refused[0][1], faults)


def _parameters(service: Service, mail: Enveloped) -> MailParameters:
    wait = ahead(mail.scheduled_at)
    most = service.server.phases.mailfrom.maxhold
    if wait is not None and (most is None or wait > most):
        allowed = "nothing, for scheduling is off (maxhold)" if most is None else f"up to {most} ahead"
        fault = Fault(where="body.scheduled_at", why=f"is too far ahead; allowed: {allowed}")
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"scheduled_at {fault.why}", errors=[fault])
    at = mail.scheduled_at if wait is not None else None
    every = [mail.sender, *(address for _, address in mail.recipients)]
    head = mail.content[: mail.content.find(b"\r\n\r\n") + 1 or len(mail.content)]
    return MailParameters(
        size=len(mail.content),
        body="7BIT" if mail.content.isascii() else "8BITMIME",
        smtputf8=not head.isascii() or any(not each.localpart.isascii() for each in every if each is not None),
        hold_until=None if at is None else at.astimezone(UTC),
        hold_request=None if at is None else f"until;{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        priority=mail.priority or None,
    )


def _go_on(reply: str | None, place: str | None = None) -> None:
    """Nothing where there is no reply; else its problem."""
    if reply is not None:
        faults = [Fault(where=f"body.{place}", why=_words(reply))] if place and reply.startswith("5") else []
        raise _problem(reply, faults)


def _problem(reply: str, faults: Sequence[Fault] = ()) -> Problem:
    """What a reply that refuses is over HTTP."""
    words = _words(reply)
    detail = f"{faults[0].where.removeprefix('body.')}: {words}" if faults else words
    if reply in {replies.R450_TOO_MANY_MESSAGES, replies.R450_TOO_MANY_RECIPIENTS}:
        return Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, retry_after=_RATE)
    if reply.startswith("4"):
        return unavailable(detail)
    if reply in {replies.R553_SENDER, *phases.NOT_OWN.values()}:
        return Problem(HTTPStatus.FORBIDDEN, detail, code="sender_not_allowed", errors=faults)
    if reply.startswith("552"):
        return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, errors=faults)
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, code="refused", errors=faults)


def _words(reply: str) -> str:
    """A reply without its codes."""
    match = _REPLY.fullmatch(reply)
    return " ".join((match[4] if match else reply).split())


def _literal(address: str) -> str:
    """The client's address as a client without a name says it (RFC 5321 section 4.1.3)."""
    if not _IN_BRACKETS.fullmatch(address):
        return address
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"


def _international(mailboxes: Sequence[Mailbox]) -> bool:
    return any(not mailbox.address.localpart.isascii() for mailbox in mailboxes)


def _size(send: Send) -> int:
    parts = sum(len(each.content) for each in send.attachments or ())
    return parts + len(send.text or "") + len(send.html or "")
