"""compile — turns a condition into SQL on `pillarbox.queue q`, or one of finished mail on `pillarbox.archive q`

Owns: the SQL of each comparison.
Guarantees: pure. Values are bound, every one; the text is put together from this file and the columns of
    shared.config.condition.fields, and never holds an operator's text. States become conditions on `status` and on the
    indexed columns, so that PostgreSQL leaves out partitions and reads indexes. A value that is not set matches no
    comparison, so it matches every negated one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from shared.config.condition.fields import METADATA
from shared.config.condition.tree import All, Node, Not, Some, Term
from shared.config.condition.values import Instant, Value
from shared.mail.domain import comparable, spellings

_DUE: Final = "q.next_retry <= {now}"
_FREE: Final = "(q.lease_until IS NULL OR q.lease_until <= {now})"
_STATES: Final = {
    "HOLD": "q.status = 'HOLD'",
    "DELETE": "q.status = 'DELETE'",
    "BOUNCE": "q.status = 'BOUNCE'",
    "SENDING": "(q.status = 'DELIVER' AND q.lease_until > {now})",
    "ACTIVE": f"(q.status = 'DELIVER' AND {_DUE} AND {_FREE})",
    "SCHEDULED": f"(q.status = 'DELIVER' AND NOT {_DUE} AND {_FREE} AND q.retry_count = 0)",
    "DEFER": f"(q.status = 'DELIVER' AND NOT {_DUE} AND {_FREE} AND q.retry_count > 0)",
}
# An age grows as its instant is further back.
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
# Due mail waits no time at all, and not less than none; <= and > mean the same either way, and read indexes.
_PAST_DUE: Final = frozenset({"=", "<", ">="})
_NULL_SENDER: Final = "<>"
# The kinds of values of which several are one array, and its type.
_ARRAYS: Final = {"text": "text[]", "uuid": "uuid[]", "number": "bigint[]", "size": "bigint[]"}
# By the index on a hash of the Message-ID (sql/schema/02_message.sql), and then the recipients by their message.
_OF_MSGIDS: Final = (
    "q.messages__id = ANY (ARRAY(SELECT m.id FROM pillarbox.messages m"
    " WHERE hashtextextended(m.msgid, 0) = ANY (ARRAY(SELECT hashtextextended(v, 0) FROM unnest({each}) AS v))"
    " AND m.msgid = ANY ({each})))"
)
# By the index on the same hash of each day of the archive.
_OF_FINISHED: Final = (
    "(hashtextextended(q.msgid, 0) = ANY (ARRAY(SELECT hashtextextended(v, 0) FROM unnest({each}) AS v))"
    " AND q.msgid = ANY ({each}))"
)
_KEPT_MSGID: Final = "q.msgid"


@dataclass(slots=True)
class Compiled:
    """A condition as SQL, with the values it binds."""

    text: str
    values: dict[str, Any] = field(default_factory=dict)


def compiled(condition: Node, now: datetime) -> Compiled:
    """The SQL of a condition. `now` by PostgreSQL's clock: a state and an age depend on it."""
    writer = _Writer(now)
    return Compiled(writer.node(condition), writer.values)


class _Writer:
    """Collects the bound values while the text grows."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self.values: dict[str, Any] = {}

    def node(self, node: Node) -> str:
        match node:
            case All(parts=()):
                return "true"
            case All(parts=parts):
                return "(" + " AND ".join(map(self.node, parts)) + ")"
            case Some(parts=parts):
                return "(" + " OR ".join(map(self.node, parts)) + ")"
            case Not(part=part):
                return f"({self.node(part)}) IS NOT TRUE"
            case Term() as term:
                text = self._term(term)
                return f"({text}) IS NOT TRUE" if term.negated else text
        raise AssertionError(node)

    def _bind(self, value: object, cast: str) -> str:
        name = f"c{len(self.values)}"
        self.values[name] = value
        return f"%({name})s::{cast}"

    def _term(self, term: Term) -> str:
        if term.field.kind == "state":
            now = self._bind(self._now, "timestamptz")
            return "(" + " OR ".join(_STATES[str(v.low)].format(now=now) for v in term.values) + ")"
        if term.field.kind == "address":
            return "(" + " OR ".join(self._address(term.name, value) for value in term.values) + ")"
        column = term.field.column
        if term.name.lower().startswith(METADATA):
            column = f"(q.metadata->>{self._bind(term.name[len(METADATA) :], 'text')})"
        exact = [value.low for value in term.values if value.how == "exact"]
        if term.operator == "=" and len(exact) == len(term.values) and term.field.kind == "domain":
            return f"{column} = ANY ({self._bind([s for domain in exact for s in spellings(str(domain))], 'text[]')})"
        if term.operator == "=" and len(exact) == len(term.values) and term.field.kind == "msgid":
            return self._of_msgids(column, exact)
        if term.operator == "=" and len(exact) == len(term.values) and term.field.kind in _ARRAYS:
            return f"{column} = ANY ({self._bind(exact, _ARRAYS[term.field.kind])})"
        return "(" + " OR ".join(self._comparison(term, column, value) for value in term.values) + ")"

    def _comparison(self, term: Term, column: str, value: Value) -> str:
        if value.how == "unset":
            return f"{column} IS NULL"
        if term.field.kind == "domain" and value.how in {"pattern", "exact"}:
            return self._is_domain(column, value)
        if value.how in {"pattern", "contains"}:
            return self._like(column, value)
        if term.field.kind in {"text", "msgid"}:
            is_text = term.field.kind == "text"
            return f"{column} = {self._bind(value.low, 'text')}" if is_text else self._of_msgids(column, [value.low])
        if value.how == "range":
            ends = ((">=", value.low), ("<=", value.high))
            terms = [self._ordered(term, column, operator, end) for operator, end in ends if end is not None]
            return "(" + " AND ".join(terms) + ")"
        return self._ordered(term, column, term.operator, value.low)

    def _of_msgids(self, column: str, wanted: list[Any]) -> str:
        return (_OF_FINISHED if column == _KEPT_MSGID else _OF_MSGIDS).format(each=self._bind(wanted, "text[]"))

    def _is_domain(self, column: str, value: Value) -> str:
        """Mail that was queued before domains were brought into one spelling may have U-labels."""
        written = spellings(str(value.low))
        if value.how == "pattern":
            return " OR ".join(self._like(column, Value("pattern", each)) for each in written)
        if len(written) == 1:
            return f"{column} = {self._bind(value.low, 'text')}"
        return f"{column} = ANY ({self._bind(list(written), 'text[]')})"

    def _ordered(self, term: Term, column: str, operator: str, end: object) -> str:
        if isinstance(end, Instant):
            return f"{column} {operator} {self._bind(end.when(self._now), 'timestamptz')}"
        if isinstance(end, timedelta):
            back = term.field.kind == "age"
            at = Instant(offset=-end if back else end).when(self._now)
            if not back and operator in _PAST_DUE:
                column = f"greatest({column}, {self._bind(self._now, 'timestamptz')})"
            return f"{column} {_MIRRORED[operator] if back else operator} {self._bind(at, 'timestamptz')}"
        return f"{column} {operator} {self._bind(end, 'bigint')}"

    def _like(self, column: str, value: Value) -> str:
        text = str(value.low).replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")
        if value.how == "contains":
            return f"pillarbox.lowered({column}) LIKE pillarbox.lowered({self._bind(f'%{text}%', 'text')})"
        return f"{column} LIKE {self._bind(text.replace('*', '%'), 'text')}"

    def _address(self, side: str, value: Value) -> str:
        """`side` is sender or recipient, whose columns are SIDElocalpart and SIDEdomain."""
        localpart, domain = f"q.{side}localpart", f"q.{side}domain"
        if value.how == "unset" or (value.how == "exact" and value.low == _NULL_SENDER):
            return f"{domain} IS NULL"
        if value.how == "contains" or (value.how == "pattern" and "@" not in str(value.low)):
            return self._like(f"({localpart} || '@' || {domain})", value)
        before, at, after = str(value.low).rpartition("@")
        parts = [(localpart, before if at else str(value.low))] if before or not at else []
        parts += [(domain, comparable(after))] if at else []
        terms = []
        for column, wanted in parts:
            if value.how == "pattern" and "*" in wanted:
                terms.append(self._like(column, Value("pattern", wanted)))
            elif column == domain:
                terms.append(self._is_domain(column, Value("exact", wanted)))
            else:
                terms.append(f"{column} = {self._bind(wanted, 'text')}")
        return "(" + " AND ".join(terms) + ")"
