"""proof — reads from logs and records which recipients were delivered

Owns: the forms of a line that proves a delivery. Pure: no I/O, no clock.
Guarantees: a line that is not understood proves nothing, nor do the words of a peer in one. A delivery is of a message,
    by our own id or by its Message-ID, to a recipient; a number of a recipient counts together with its message alone,
    since numbers are given again.
See: sql/README.md, "A restored queue"; docs/how-to/operate/back-up-and-recover.md.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from shared.mail.address import AddressRefused, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMS: Final = (
    "lines of queued's log, events of webhooks as JSON lines, `pillarbox sink show --json`, a Postfix log, "
    "or lines of a Message-ID or message id and a recipient"
)
# What may come before a line of ours: a program with its pid, a container, or a container's stream. None has a field,
# and a peer's words, which may look like any line, come behind one.
_AHEAD: Final = r'(?:[^\]="]*\]:? |[^\]=":]* |\S+ std(?:out|err) [FP] )?\d{4}-\d\d-\d\dT[\d:.]+Z \w+ '
_OURS: Final = re.compile(_AHEAD + r"result\.delivered (?P<fields>.*)")
_ACCEPTED: Final = re.compile(_AHEAD + r"spool\.committed (?P<fields>.*)")
_FIELD: Final = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')
_POSTFIX: Final = re.compile(r"[^\[=\"]*postfix(?:/[\w-]+)+\[\d+\]: (?P<queued>[0-9A-Za-z]+): (?P<rest>.*)")
_MESSAGE_ID: Final = re.compile(r"message-id=<?([^>\s]+)>?")
_TO: Final = re.compile(r"to=<([^>]+)>(?:, orig_to=<([^>]+)>)?, relay=")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WORDS: Final = 2  # of a plain line

type Key = tuple[UUID | str, str]  # a message, by its id or Message-ID, and a recipient


@dataclass(slots=True)
class Proofs:
    """What was read: deliveries by key, recipients that a webhook named by number, and messages accepted."""

    delivered: Counter[Key] = field(default_factory=Counter)
    exactly: set[tuple[int, UUID]] = field(default_factory=set)
    accepted: set[UUID] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.delivered or self.exactly or self.accepted)

    def add(self, other: Proofs) -> None:
        """Add another source's: one delivery may be in both, so the larger count of a key counts."""
        self.delivered |= other.delivered
        self.exactly |= other.exactly
        self.accepted |= other.accepted


def read(lines: Iterable[str]) -> Proofs:
    """What the lines of one source prove."""
    found = Proofs()
    names: dict[str, str] = {}  # Message-IDs by Postfix's queue ids
    seen: set[tuple[str, str]] = set()  # Postfix's queue id and recipient: each of its tries has a line
    events: set[str] = set()  # ids of webhooks' events: one may come twice
    for line in lines:
        text = line.strip()
        if text.startswith("{"):
            _read_json(text, found, events)
        elif ours := _OURS.match(text):
            fields = _fields(ours["fields"])
            _count(found, fields.get("id"), fields.get("to"))
        elif accepted := _ACCEPTED.match(text):
            if message := _message(_fields(accepted["fields"]).get("id")):
                found.accepted.add(message)
        elif postfix := _POSTFIX.match(text):
            _read_postfix(postfix["queued"], postfix["rest"], found, names, seen)
        elif len(words := text.split()) == _WORDS:
            _count(found, *words)
    return found


def recipient_key(address: str) -> str | None:
    """An address as it is compared: its domain in one spelling; None where it is not an address."""
    try:
        return str(parse(address.strip("<>")))
    except AddressRefused:
        return None


def _count(found: Proofs, message: object, recipient: object) -> None:
    """One more delivery, if both are what they should be."""
    if not (isinstance(message, str) and isinstance(recipient, str)):
        return
    name, to = message.strip("<>"), recipient_key(recipient)
    if name and to:
        found.delivered[(_message(name) or name, to)] += 1


def _message(text: object) -> UUID | None:
    return UUID(text) if isinstance(text, str) and _UUID.fullmatch(text) else None


def _fields(text: str) -> dict[str, str]:
    return {name: value.strip('"') for name, value in _FIELD.findall(text)}


def _read_json(text: str, found: Proofs, events: set[str]) -> None:
    """An event of a webhook, a batch of them, or a record with recipients."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(record, dict):
        return
    data = record.get("data")
    if record.get("type") == "batch" and isinstance(data, list):
        for each in data:
            if isinstance(each, dict):
                _read_event(each, found, events)
    elif "type" in record:
        _read_event(record, found, events)
    else:
        _read_record(record, found)


def _read_event(record: dict[str, Any], found: Proofs, events: set[str]) -> None:
    """What a webhook brought: only that it was delivered proves anything."""
    data, name = record.get("data"), record.get("id")
    if record.get("type") != "delivered" or not isinstance(data, dict) or name in events:
        return
    message, number = _message(data.get("message")), data.get("id")
    if message is None or not isinstance(number, int):
        return
    if isinstance(name, str):
        events.add(name)
    found.exactly.add((number, message))


def _read_record(record: dict[str, Any], found: Proofs) -> None:
    """A message that a server took, as `pillarbox sink show` has it, or whatever names message and recipient."""
    message = record.get("message") or record.get("messageid") or record.get("msgid")
    recipients = record.get("recipients") or [record.get("recipient")]
    for each in recipients if isinstance(recipients, list) else []:
        _count(found, message, each)


def _read_postfix(queued: str, rest: str, found: Proofs, names: dict[str, str], seen: set[tuple[str, str]]) -> None:
    """Once Postfix has a message in its own queue we have delivered it, whatever becomes of it there."""
    if name := _MESSAGE_ID.match(rest):
        names[queued] = name[1]
    elif (to := _TO.match(rest)) and queued in names:
        recipient = to[2] or to[1]
        if (queued, recipient) not in seen:
            seen.add((queued, recipient))
            _count(found, names[queued], recipient)
