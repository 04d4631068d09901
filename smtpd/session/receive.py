"""receive — the end of content, step by step: check it, ask policy, make the submission, commit it, say 250

Owns: the order of the steps, which go one way; the rows and the body that a transaction becomes; the one line of code
    that says 250 for a message. Needs no SMTP session, so that other entrances can use it.
Guarantees: a message that a step refuses goes no further; its reply is that step's. 250 follows COMMIT, for all
    recipients together. Any failure on our side is 4xx without a detail. The stored content is the submitted content,
    octet for octet, after our header fields, but for fields that do not go on, such as Bcc, and repairs that the
    configuration asks for; policy sees it with these fields. The parameters of the client are in the queue rows, for
    delivery to honour.
See: RFC 5321 sections 4.1.1.4, 4.4, 6.1 (responsibility after 250), 6.3 (loops); sql/README.md, "Reserved metadata".
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shared.errors import NoSpace, SpoolFull, SpoolUnavailable
from shared.failure_points import reach
from shared.mail import found_by
from shared.mail.address import least_quoted
from shared.mail.message import MessageDsn, Recipient, RecipientDsn, Submission, new_message_id
from shared.observe import events, tracing
from smtpd import replies
from smtpd.message import trace_headers
from smtpd.message.content import check, without
from smtpd.replies import Refused
from smtpd.session import phases

if TYPE_CHECKING:
    from uuid import UUID

    from shared.config.smtpd.content import DataPhase
    from shared.spool.spool import Spool
    from smtpd.envelope.client import Client
    from smtpd.envelope.transaction import Transaction
    from smtpd.message.content import CheckedContent
    from smtpd.session.phases import PolicyResult, Submitter
    from smtpd.session.service import Reception


async def receive(session: Submitter, transaction: Transaction) -> str:
    """The reply to the final dot."""
    message_id = new_message_id()
    with tracing.begin("smtpd.receive", {"pillarbox.id": message_id}, at=transaction.began) as span:
        reply = await _receive(session, transaction, message_id, span.traceparent if span else None)
        span.set({"smtp.reply": reply, "pillarbox.recipients": len(transaction.recipients)})
        return reply


async def _receive(session: Submitter, transaction: Transaction, message_id: UUID, traceparent: str | None) -> str:
    place = session.service.place
    try:
        checked = await check(transaction.content, transaction.parameters, place.limits, place.hostname)
    except Refused as refusal:
        return refusal.reply
    added = _adds_from(transaction, session.client, place, checked)
    judged = await phases.at_end(session, checked.content, message_id, adds_from=added)
    if judged.reply is not None:
        return judged.reply
    checked = without(checked, place.limits.dropheaders)
    made = submission(transaction, session.client, place, checked, judged, message_id)
    return await commit(place.spool, replace(made, traceparent=traceparent) if traceparent else made)


def not_ready(spool: Spool, size: int = 0) -> str | None:
    """The reply to a client that wants to send `size` octets while nothing can be committed; asked before 354."""
    trouble = spool.ready(size)
    return None if trouble is None else _unavailable(trouble)


def no_room(spool: Spool, size: int = 0) -> str | None:
    """The reply to MAIL for a message of `size` octets that would leave PostgreSQL too little space."""
    trouble = spool.room(size)
    return None if trouble is None else _unavailable(trouble)


def submission(
    t: Transaction, client: Client, place: Reception, checked: CheckedContent, judged: PolicyResult, message_id: UUID
) -> Submission:
    """The message as it will be stored."""
    if not trace_headers.are_fields(judged.headers):
        raise ValueError("policy adds lines that are not header fields")  # our fault: the client gets 451
    asked = t.parameters
    kept = checked.header.kept
    return Submission(
        id=message_id,
        sender=t.sender,
        recipients=_recipients(t, judged),
        content=checked.content,
        smtputf8=asked.smtputf8,
        senderip=client.address,
        serverid=place.serverid,
        senderhelo=client.helo or "",
        saslusername=None if client.user is None else client.user.name,
        trace=_trace(t, client, place, checked, message_id) + judged.headers + checked.seam,
        priority=asked.priority or 0,
        not_before=asked.hold_until,
        release_request=asked.hold_request,
        dsn=MessageDsn(asked.ret, asked.envid) if asked.ret or asked.envid is not None else None,
        body=asked.body,
        requiretls=asked.requiretls,
        foreign_from=judged.foreign_from,
        tls_optional=checked.header.tls_optional,
        msgid=_msgid(client, place, checked, message_id),
        subject=found_by.subject(kept[b"subject"]) if b"subject" in kept else None,
        once=t.once,
    )


async def commit(spool: Spool, submission: Submission) -> str:
    """Commit the message, and only then say 250; the reply to its final dot.

    KeyUsed and KeyBusy are for the entrance that gave the key.
    """
    try:
        with tracing.begin("smtpd.spool", {"pillarbox.size": submission.size}):
            await spool.submit(submission)
    except SpoolUnavailable as trouble:
        return _unavailable(trouble)
    events.emit(
        "spool.committed",
        id=submission.id,
        sender=submission.sender or "<>",
        recipients=len(submission.recipients),
        size=submission.size,
        client=submission.senderip,
        held=submission.held or None,
        priority=submission.priority or None,
        due=submission.not_before,
    )
    reach("receive.before_reply")
    return replies.R250_QUEUED.format(id=submission.id)


def _unavailable(trouble: SpoolUnavailable) -> str:
    if isinstance(trouble, NoSpace):
        return replies.R452_NO_SPACE
    return replies.R452_SPOOL_FULL if isinstance(trouble, SpoolFull) else replies.R451_LOCAL_ERROR


def _recipients(t: Transaction, judged: PolicyResult) -> tuple[Recipient, ...]:
    """The rows as policy has them, each with what the client asked for that recipient.

    A repeated recipient gets the message once, unless it has other parameters: as Postfix's cleanup does, but for
    the case of the local part, which only its host can tell means nothing (RFC 5321 section 2.4), except in postmaster
    (section 4.5.1). The first counts.
    """
    rows = judged.recipients or tuple(each.recipient for each in t.recipients)
    if t.metadata:
        rows = tuple(replace(row, metadata={**t.metadata, **row.metadata}) for row in rows)
    wanted: dict[tuple[object, ...], Recipient] = {}
    for each, row in zip(t.recipients, rows, strict=True):
        notify, orcpt = each.parameters.notify, each.parameters.orcpt
        asked = replace(row, dsn=RecipientDsn(notify, orcpt)) if notify or orcpt else row
        localpart = least_quoted(row.address.localpart)
        localpart = localpart.lower() if localpart.lower() == "postmaster" else localpart
        wanted.setdefault((localpart, row.address.domain.lower(), notify, orcpt), asked)
    return tuple(wanted.values())


def _trace(t: Transaction, client: Client, place: Reception, checked: CheckedContent, message_id: UUID) -> bytes:
    limits = place.limits
    now = datetime.now(UTC).replace(microsecond=0)
    tls = client.tls
    header = trace_headers.received(
        trace_headers.Seen(
            helo=client.helo or "",
            client=client.address,
            hostname=place.hostname,
            extended=client.extended,
            smtputf8=t.parameters.smtputf8,
            name=client.name,
            tls=None if tls is None else (tls.version, tls.cipher, tls.bits),
            certificate=tls.subject if tls is not None and tls.verified else None,
            authenticated=client.user is not None,
            user=client.user.name if client.user is not None and limits.traceuser == "show" else None,
            recipient=t.recipients[0].recipient.address
            if len(t.recipients) == 1 and limits.tracerecipient == "show"
            else None,
            priority=t.parameters.priority,
            protocol=client.protocol,
        ),
        message_id,
        now,
    )
    if _adds(limits, client):
        header += trace_headers.missing(
            checked.header.names, t.sender, message_id, place.hostname, now, smtputf8=t.parameters.smtputf8
        )
    return header


def _adds_from(t: Transaction, client: Client, place: Reception, checked: CheckedContent) -> bool:
    """Whether the message gets a From field of ours, because it has none."""
    return _adds(place.limits, client) and trace_headers.adds_from(
        checked.header.names, t.sender, smtputf8=t.parameters.smtputf8
    )


def _adds(limits: DataPhase, client: Client) -> bool:
    """Whether fields that are missing are added for this client."""
    return limits.addheaders == "always" or (limits.addheaders == "authenticated" and client.user is not None)


def _msgid(client: Client, place: Reception, checked: CheckedContent, message_id: UUID) -> str | None:
    """The Message-ID that the stored message has: the client's, or the one we add."""
    written = checked.header.kept.get(b"message-id")
    if written is not None:
        return found_by.msgid(written)
    return trace_headers.own_msgid(message_id, place.hostname) if _adds(place.limits, client) else None
