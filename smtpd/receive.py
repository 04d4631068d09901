"""receive — end of DATA: check the content, commit, and only then say 250

Owns: the one line of code that says 250 for a message.
Called by: smtpd.session.
Guarantees: 250 follows COMMIT, for all recipients together. Whatever goes wrong on our side is 451 without a detail.
    What is stored is what was submitted, octet for octet, behind our Received header.
See: RFC 5321 sections 4.1.1.4, 4.4, 6.1 (responsibility after 250), 6.3 (loops).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shared import events
from shared.errors import SpoolFull, SpoolUnavailable
from shared.message import Recipient, Submission, new_message_id
from smtpd import replies, trace_headers

if TYPE_CHECKING:
    from shared.message import Address
    from shared.smtpd_config import DataPhase
    from shared.spool import Spool

_NEWLINE = re.compile(rb"\r?\n|\r")


@dataclass(frozen=True, slots=True)
class Received:
    """A transaction at end of DATA: who sends, to whom, what, and how it came in."""

    sender: Address | None
    recipients: tuple[Recipient, ...]
    content: bytes
    smtputf8: bool
    client: str
    helo: str
    user: str | None
    extended: bool
    tls: bool


async def receive(transaction: Received, spool: Spool, limits: DataPhase, serverid: str, hostname: str) -> str:
    """Commit the message and return the reply to its final dot."""
    content = transaction.content
    if b"\0" in content:
        return replies.R554_NUL
    if has_bare_newline(content):
        if limits.barenewline == "reject":
            return replies.R554_BARE_NEWLINE
        content = _NEWLINE.sub(b"\r\n", content)
    if trace_headers.hops(content) > limits.maxhops:
        return replies.R554_TOO_MANY_HOPS
    submission = _submission(transaction, content, serverid, hostname)
    try:
        await spool.submit(submission)
    except SpoolFull:
        return replies.R452_SPOOL_FULL
    except SpoolUnavailable:
        return replies.R451_LOCAL_ERROR
    events.emit(
        "spool.committed",
        id=submission.id,
        sender=submission.sender or "<>",
        recipients=len(submission.recipients),
        size=len(submission.content),
        client=submission.senderip,
        held=submission.held or None,
    )
    return replies.R250_QUEUED.format(id=submission.id)


def has_bare_newline(content: bytes) -> bool:
    """Whether any CR or LF stands alone (RFC 5321 section 2.3.8): three counts at memory speed, no scan of our own."""
    lines = content.count(b"\r\n")
    return content.count(b"\n") != lines or content.count(b"\r") != lines


def _submission(t: Received, content: bytes, serverid: str, hostname: str) -> Submission:
    message_id = new_message_id()
    keyword = trace_headers.with_keyword(
        extended=t.extended, tls=t.tls, authenticated=t.user is not None, smtputf8=t.smtputf8
    )
    header = trace_headers.received(
        helo=t.helo,
        client=t.client,
        hostname=hostname,
        protocol=keyword,
        message_id=message_id,
        now=datetime.now(UTC),
    )
    return Submission(
        id=message_id,
        sender=t.sender,
        recipients=t.recipients,
        content=header + content,
        smtputf8=t.smtputf8,
        senderip=t.client,
        serverid=serverid,
        senderhelo=t.helo,
        saslusername=t.user,
    )
