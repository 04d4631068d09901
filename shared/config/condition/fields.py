"""fields — the fields of a condition

Owns: the names that a condition knows, the kind of value of each, and the columns behind them.
Guarantees: a name is a column of the queue wherever there is one for it. An operator's text never becomes part of SQL:
    only the texts of this table do.
See: docs/reference/condition.md; sql/README.md, "States" and "Reserved metadata".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

type Kind = Literal["text", "domain", "address", "number", "size", "time", "age", "wait", "state", "uuid", "msgid"]

#: The form of each kind of value, for messages and the reference.
ALLOWED: Final[dict[Kind, str]] = {
    "text": "text; * matches any characters; quotes where it has spaces, commas or parentheses",
    "domain": "a domain; * matches any characters: *.example.com",
    "address": "local-part@domain, @domain, or <> for the null sender; * matches any characters",
    "number": "a whole number",
    "size": "a size: 500, 10KiB, 25MiB",
    "time": "2026-11-20, 2026-11-20T08:30, 2026-11-20T08:30:00Z, now, now-2h or now+30m; UTC unless it says otherwise",
    "age": "a duration: 90s, 1h30m, 5d",
    "wait": "a duration: 90s, 1h30m, 5d",
    "state": "ACTIVE, SCHEDULED, SENDING, DEFER, HOLD, DELETE or BOUNCE",
    "uuid": "a message id, 32 hexadecimal digits, with or without hyphens",
    "msgid": "a Message-ID, with or without angle brackets; * matches any characters",
}

STATES: Final = ("ACTIVE", "SCHEDULED", "SENDING", "DEFER", "HOLD", "DELETE", "BOUNCE")


@dataclass(frozen=True, slots=True)
class Field:
    """One name: its kind of values, the SQL expression on `pillarbox.queue q`, and what it is.

    least, most: the bounds of a number, those of its column.
    """

    kind: Kind
    column: str
    meaning: str
    least: int = 0
    most: int = 2**31 - 1


_BIGINT: Final = 2**63 - 1
_OF_MESSAGE: Final = "(SELECT m.{} FROM pillarbox.messages m WHERE m.id = q.messages__id)"

FIELDS: Final[dict[str, Field]] = {
    "id": Field("number", "q.id", "The number of the recipient's row.", most=_BIGINT),
    "message": Field("uuid", "q.messages__id", "The id of the message, as in logs and in the 250 reply."),
    "msgid": Field("msgid", _OF_MESSAGE.format("msgid"), "The Message-ID in the message's header."),
    "subject": Field("text", _OF_MESSAGE.format("subject"), "The subject in the message's header, decoded."),
    "state": Field("state", "", "The state as shown to people: the status refined by time."),
    "age": Field("age", "q.ts", "How long ago the message was received."),
    "ts": Field("time", "q.ts", "When the message was received."),
    "sender": Field("address", "q.sender", "The envelope's sender; <> is the null sender."),
    "senderdomain": Field("domain", "q.senderdomain", "The domain of the envelope's sender."),
    "senderlocalpart": Field("text", "q.senderlocalpart", "The local-part of the envelope's sender."),
    "recipient": Field("address", "q.recipient", "The envelope's recipient."),
    "recipientdomain": Field("domain", "q.recipientdomain", "The domain of the recipient: the destination."),
    "recipientlocalpart": Field("text", "q.recipientlocalpart", "The local-part of the recipient."),
    "senderip": Field("text", "q.senderip", "The address of the client that submitted it."),
    "senderhelo": Field("text", "q.senderhelo", "The name of that client in its EHLO."),
    "saslusername": Field("text", "q.saslusername", "The user that submitted it."),
    "serverid": Field("text", "q.serverid", "The listener that took it."),
    "size": Field("size", "q.size", "The octets of the message."),
    "partition": Field("text", "q.metadata->>'_partid'", "The partition id, `_partid`."),
    "quarantine": Field("text", "q.metadata->>'_quarantineid'", "The quarantine it is held in, `_quarantineid`."),
    "held": Field(
        "age",
        "coalesce((q.metadata->>'_heldat')::timestamptz, q.ts)",
        "How long it is on hold; its age, if it is not or always was.",
    ),
    "reason": Field("text", "q.metadata->>'_holdreason'", "Why it was put on hold, in words, `_holdreason`."),
    "transport": Field("text", "q.transportid", "The transport it goes by."),
    "jobid": Field("text", "q.jobid", "The application's own id for a mailing."),
    "priority": Field("number", "q.priority", "Urgent above 0, bulk below (RFC 6710).", least=-9, most=9),
    "retry_count": Field("number", "q.retry_count", "How many tries have begun."),
    "next_retry": Field("time", "q.next_retry", "When it is due."),
    "wait": Field("wait", "q.next_retry", "How long it is until it is due; 0s for mail that is due already."),
    "last_retry": Field("time", "q.last_retry", "When the last try began."),
    "last_error": Field("text", "q.last_error", "Why the last try did not deliver it."),
    "worker": Field("text", "q.worker", "The worker that has it in hand."),
}

#: Names of the Halon era and habits of other systems, and what they are called here.
ALIASES: Final[dict[str, str]] = {
    "status": "state",
    "messages__id": "message",
    "messageid": "msgid",
    "message_id": "msgid",
    "from": "sender",
    "to": "recipient",
    "domain": "recipientdomain",
    "destination": "recipientdomain",
    "user": "saslusername",
    "partid": "partition",
    "quarantineid": "quarantine",
    "transportid": "transport",
    "job": "jobid",
    "tries": "retry_count",
    "error": "last_error",
    "received": "ts",
    "due": "next_retry",
}

METADATA: Final = "metadata."

_KEPT: Final = (
    "id", "message", "age", "ts", "sender", "senderdomain", "senderlocalpart", "recipient", "recipientdomain",
    "recipientlocalpart", "senderip", "saslusername", "serverid", "size", "partition", "quarantine", "transport",
    "jobid", "priority", "retry_count", "last_error", "worker",
)  # fmt: skip
#: What a condition may ask of finished mail, which is `pillarbox.archive q`.
FINISHED: Final[dict[str, Field]] = {
    "finished": Field("time", "q.finished", "When it was finished."),
    "result": Field("text", "q.result", "How it was finished: success, rejected, failed, expired, deleted or bounced."),
    "msgid": Field("msgid", "q.msgid", "The Message-ID in the message's header."),
    "subject": Field("text", "q.subject", "The subject in the message's header, decoded."),
    **{name: FIELDS[name] for name in _KEPT},
}


def find(name: str, fields: Mapping[str, Field] = FIELDS) -> Field | None:
    """The field of this name, case and aliases aside; metadata.KEY is one for any key; None for an unknown name."""
    if name.lower().startswith(METADATA) and len(name) > len(METADATA):
        return Field("text", "q.metadata->>", f"The metadata key {name[len(METADATA) :]}.")
    lowered = name.lower()
    return fields.get(ALIASES.get(lowered, lowered))
