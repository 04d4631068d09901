"""of-event — whether an event of a recipient fits a condition

Owns: the fields of docs/reference/condition.md that an event has, and what each is there.
Guarantees: pure. A field that the event does not have matches no comparison, as a column that is not set. What an event
    cannot tell (a state, when it is due, how long it waits) is refused when the condition is read.
Raises: ConditionError.
See: operate/condition/compile.py, which does the same in SQL.
"""

from __future__ import annotations

import re
from datetime import datetime
from operator import eq, ge, gt, le, lt
from typing import TYPE_CHECKING, Any, Final

from shared.config.condition.fields import ALIASES, METADATA
from shared.config.condition.read import read
from shared.config.condition.tree import All, ConditionError, Not, Some, Term, terms
from shared.config.condition.values import Instant
from shared.mail.domain import comparable, spellings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.config.condition.tree import Node
    from shared.config.condition.values import Scalar, Value

_COMPARED: Final = {"=": eq, "<": lt, "<=": le, ">": gt, ">=": ge}
#: Fields of a condition, and the keys of an event's data that have them.
KEYS: Final = {
    "id": "id",
    "message": "message",
    "msgid": "msgid",
    "subject": "subject",
    "sender": "sender",
    "senderdomain": "sender",
    "senderlocalpart": "sender",
    "recipient": "recipient",
    "recipientdomain": "recipient",
    "recipientlocalpart": "recipient",
    "senderip": "client",
    "saslusername": "user",
    "serverid": "listener",
    "ts": "received",
    "size": "size",
    "partition": "partition",
    "quarantine": "quarantine",
    "reason": "reason",
    "transport": "transport",
    "jobid": "jobid",
    "priority": "priority",
    "retry_count": "tries",
    "last_error": "error",
}


def condition(text: str) -> Node | None:
    """The condition, if it can be asked of an event; None for none."""
    if not text.strip():
        return None
    node = read(text)
    for term in terms(node):
        if _key(term) is None:
            allowed = f"{', '.join(KEYS)}, metadata.KEY"
            raise ConditionError(
                f"{term.name}: an event does not have it; allowed: {allowed}", text, max(text.find(term.name), 0)
            )
    return node


def fits(node: Node, event: Mapping[str, Any], now: datetime) -> bool:
    """Whether the data of an event fit."""
    match node:
        case All(parts=parts):
            return all(fits(part, event, now) for part in parts)
        case Some(parts=parts):
            return any(fits(part, event, now) for part in parts)
        case Not(part=part):
            return not fits(part, event, now)
        case Term() as term:
            return any(_fits(term, value, event, now) for value in term.values) is not term.negated
    raise AssertionError(node)


def _key(term: Term) -> str | None:
    name = term.name.lower()
    return "metadata" if name.startswith(METADATA) else KEYS.get(ALIASES.get(name, name))


def _found(term: Term, event: Mapping[str, Any]) -> Any:
    key = _key(term)
    found = event.get(key or "")
    if key == "metadata":
        found = (found or {}).get(term.name[len(METADATA) :])
        return found if found is None or isinstance(found, str) else str(found)
    if found is None or found == "":
        return None
    if term.field.kind == "time":
        return datetime.fromisoformat(found)
    part = ALIASES.get(term.name.lower(), term.name.lower()).removeprefix(key or "")
    if part in {"localpart", "domain"}:
        return found.rpartition("@")[0 if part == "localpart" else 2]
    return str(found) if term.field.kind in {"text", "domain", "address", "msgid"} else found


def _fits(term: Term, value: Value, event: Mapping[str, Any], now: datetime) -> bool:  # noqa: PLR0911 - one for each kind
    found = _found(term, event)
    if value.how == "unset":
        return found is None
    if term.field.kind == "address":
        return _address(found, value)
    if found is None:
        return False
    if value.how == "contains":
        return str(value.low).lower() in found.lower()
    if term.field.kind == "domain":
        return any(
            _like(found, each) if value.how == "pattern" else found == each for each in spellings(str(value.low))
        )
    if value.how == "pattern":
        return _like(found, str(value.low))
    if value.how == "range":
        ends = ((ge, value.low), (le, value.high))
        return all(end is None or compare(found, _plain(end, now)) for compare, end in ends)
    return bool(_COMPARED[term.operator](found, _plain(value.low, now)))


def _plain(scalar: Scalar | None, now: datetime) -> Any:
    if isinstance(scalar, Instant):
        return scalar.when(now)
    return scalar if isinstance(scalar, int) else str(scalar)


def _like(text: str, pattern: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def _address(found: str | None, value: Value) -> bool:
    wanted = str(value.low)
    if found is None or (value.how == "exact" and wanted == "<>"):
        return found is None and value.how == "exact" and wanted == "<>"
    if value.how == "contains":
        return wanted.lower() in found.lower()
    if "@" not in wanted:
        return value.how == "pattern" and _like(found, wanted)
    local, _, domain = wanted.rpartition("@")
    has_local, _, has_domain = found.rpartition("@")
    is_local = not local or (_like(has_local, local) if value.how == "pattern" else has_local == local)
    return is_local and any(
        _like(has_domain, each) if value.how == "pattern" else has_domain == each
        for each in spellings(comparable(domain))
    )
