"""envelope — makes the transaction of one attempt, from recipients in flight and their message

Owns: the parts of a claim that are sent: addresses, content, and the submitter's parameters; and the fields by which
    mail is paced.
Guarantees: pure. Values of the message as a whole are read from the first of its rows, because all rows agree.
See: RFC 3461 section 5.2.1 (notifications are the next hop's to make, where it can); RFC 8689 (REQUIRETLS); RFC 6710
    (priority)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queued.dsn import requested
from queued.pacing.pace import Fields
from queued.smtp.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queued.values import Body, Claimed


def transaction(claimed: Sequence[Claimed], body: Body, prefix: bytes, sender: str | None = None) -> Transaction:
    """The transaction for these recipients of one message.

    prefix: header fields that go before its content. sender: for MAIL FROM, where it is not the message's own.
    """
    first = claimed[0]
    recipients = tuple(map(str, (c.recipient for c in claimed)))
    by = str(first.sender or "") if sender is None else sender
    if not first.metadata:
        return Transaction(by, recipients, body.content, body.smtputf8, prefix=prefix, priority=first.priority)
    message = requested.of_message(first.metadata)
    wishes = tuple(requested.of_recipient(c.metadata) for c in claimed)
    return Transaction(
        sender=by,
        recipients=recipients,
        content=body.content,
        smtputf8=body.smtputf8,
        body8bit=first.metadata.get("_body") == "8BITMIME",
        prefix=prefix,
        ret=message.ret,
        envid=message.envid,
        dsn=wishes if any(wishes) else (),
        priority=first.priority,
        requiretls=requested.requiretls(first.metadata),
    )


def fields(first: Claimed, site: str | None = None) -> Fields:
    """The facts by which the mail of an attempt is paced; `site` once the exchangers are known."""
    tenant = first.metadata.get("tenant")
    return Fields(
        first.transportid,
        first.recipient.domain,
        first.sender.domain if first.sender else None,
        None if tenant is None else str(tenant),
        first.jobid,
        site,
    )
