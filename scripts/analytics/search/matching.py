"""matching — turns a condition into Arrow's expression on rows of the lake's archive

Owns: the fields of docs/reference/condition.md that a finished recipient has, and what each is there.
Guarantees: pure. A field means the same as in the queue: a value that is not set matches no comparison, so it matches
    every negated one. What a finished recipient cannot tell (a state, a quarantine, when it is due) is refused.
Raises: ConditionError.
See: operate/condition/compile.py, which does the same in SQL.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from operate.condition.ids import named
from shared.config.condition.read import read
from shared.config.condition.tree import All, ConditionError, Node, Not, Some, Term, terms
from shared.config.condition.values import Instant, Value
from shared.mail.domain import comparable, spellings

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Fields of a condition, and the columns of the lake that have them; an address is two columns.
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "id": ("id",),
    "message": ("messages__id",),
    "msgid": ("msgid",),
    "subject": ("subject",),
    "age": ("ts",),
    "ts": ("ts",),
    "sender": ("senderlocalpart", "senderdomain"),
    "senderdomain": ("senderdomain",),
    "senderlocalpart": ("senderlocalpart",),
    "recipient": ("recipientlocalpart", "recipientdomain"),
    "recipientdomain": ("recipientdomain",),
    "recipientlocalpart": ("recipientlocalpart",),
    "senderip": ("senderip",),
    "saslusername": ("saslusername",),
    "serverid": ("serverid",),
    "size": ("size",),
    "transport": ("transportid",),
    "jobid": ("jobid",),
    "priority": ("priority",),
    "retry_count": ("retry_count",),
    "last_error": ("last_error",),
    "worker": ("worker",),
}
_COMPARED: Final = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
# An age grows as its instant is further back.
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_NULL_SENDER: Final = "<>"


def condition(words: Sequence[str]) -> Node:
    """The condition of these words, if the archive can answer it; ids and a Message-ID in <> stand for themselves."""
    node = read(named(words))
    for term in terms(node):
        if term.name not in COLUMNS:
            text = " ".join(words)
            allowed = f"{term.name}: finished mail in the lake does not have it; allowed: {', '.join(COLUMNS)}"
            raise ConditionError(allowed, text, max(text.find(term.name), 0))
    return node


def columns(node: Node) -> list[str]:
    """The columns that a condition needs."""
    return list(dict.fromkeys(name for term in terms(node) for name in COLUMNS[term.name]))


def expression(node: Node, now: datetime) -> pc.Expression:
    """The condition as Arrow has it."""
    match node:
        case All(parts=parts):
            return _joined([expression(part, now) for part in parts], every=True)
        case Some(parts=parts):
            return _joined([expression(part, now) for part in parts], every=False)
        case Not(part=part):
            return _not(expression(part, now))
        case Term() as term:
            found = _joined([_comparison(term, value, now) for value in term.values], every=False)
            return _not(found) if term.negated else found
    raise AssertionError(node)


def _joined(parts: Sequence[pc.Expression], *, every: bool) -> pc.Expression:
    """All of these, or any; of none: every row, or none."""
    if not parts:
        return pc.scalar(every)
    whole = parts[0]
    for part in parts[1:]:
        whole = whole & part if every else whole | part
    return whole


def _not(part: pc.Expression) -> pc.Expression:
    """Whether it is not so, or not known."""
    return ~pc.coalesce(part, pc.scalar(False))


def _comparison(term: Term, value: Value, now: datetime) -> pc.Expression:  # noqa: PLR0911 - one for each kind
    names = COLUMNS[term.name]
    column = pc.field(names[-1])
    if value.how == "unset":
        return column.is_null()
    if term.field.kind == "address":
        return _address(names, value)
    if value.how == "contains":
        return _contains(column, value)
    if term.field.kind == "domain":
        return _domain(column, str(value.low))
    if value.how == "pattern":
        return _like(column, str(value.low))
    if value.how == "range":
        ends = ((">=", value.low), ("<=", value.high))
        return _joined([_ordered(term, column, sign, end, now) for sign, end in ends if end is not None], every=True)
    return _ordered(term, column, term.operator, value.low, now)


def _ordered(term: Term, column: pc.Expression, operator: str, end: object, now: datetime) -> pc.Expression:
    if isinstance(end, timedelta):
        end, operator = Instant(offset=-end), _MIRRORED[operator]
    if isinstance(end, Instant):
        return _COMPARED[operator](column, pc.scalar(pa.scalar(end.when(now), pa.timestamp("us", "UTC"))))
    return _COMPARED[operator](column, pc.scalar(str(end) if term.field.kind in {"text", "msgid", "uuid"} else end))


def _domain(column: pc.Expression, wanted: str) -> pc.Expression:
    """Mail that was queued before domains were brought into one spelling may have U-labels."""
    return _joined([_like(column, each) for each in spellings(wanted)], every=False)


def _like(column: pc.Expression, wanted: str) -> pc.Expression:
    """Equality, or a pattern where `wanted` has an asterisk."""
    if "*" not in wanted:
        return column == pc.scalar(wanted)
    text = wanted.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_").replace("*", "%")
    return pc.match_like(column, text)


def _contains(column: pc.Expression, value: Value) -> pc.Expression:
    return pc.match_substring(column, str(value.low), ignore_case=True)


def _address(names: Sequence[str], value: Value) -> pc.Expression:
    localpart, domain = (pc.field(name) for name in names)
    wanted = str(value.low)
    if value.how == "exact" and wanted == _NULL_SENDER:
        return domain.is_null()
    if value.how == "contains" or "@" not in wanted:
        whole = pc.binary_join_element_wise(localpart, domain, pc.scalar("@"))
        return _contains(whole, value) if value.how == "contains" else _like(whole, wanted)
    before, _, after = wanted.rpartition("@")
    is_local = [_like(localpart, before) if value.how == "pattern" else localpart == pc.scalar(before)]
    return _joined([*(is_local if before else []), _domain(domain, comparable(after))], every=True)
