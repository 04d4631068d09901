"""receive — the end of content, step by step: check it, ask policy, make the submission, commit it

Owns: the order of the steps, which go one way. Policy never calls the spool.
Guarantees: a message that a step refuses goes no further; its reply is that step's.
See: smtpd/message/submission.py for the 250; RFC 5321 section 4.1.1.4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared.mail.message import new_message_id
from shared.observe import tracing
from smtpd.message import content
from smtpd.message.submission import commit, submission
from smtpd.replies import Refused
from smtpd.session import phases

if TYPE_CHECKING:
    from uuid import UUID

    from smtpd.envelope.transaction import Transaction
    from smtpd.session.phases import Submitter


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
        checked = await content.check(transaction.content, transaction.parameters, place.limits, place.hostname)
    except Refused as refusal:
        return refusal.reply
    judged = await phases.at_end(session, checked.content, message_id)
    if judged.reply is not None:
        return judged.reply
    made = submission(transaction, session.client, place, checked, judged, message_id)
    return await commit(place.spool, replace(made, traceparent=traceparent) if traceparent else made)
