"""conditions — proves what a worker's WHERE is worth, by asking PostgreSQL

Owns: the order of proof: the names in its text, that it is one immutable expression over columns of queue, what it says
    of each partition id, and which leaves its claims open.
Guarantees: nothing that another login may have made is parsed, let alone run: the register's text is another
    process's. PostgreSQL reads the condition without parentheses around it and as the end of a single statement, so
    it cannot be more than one expression. No row of the queue is read. Read-only, but for a temporary table that is
    never committed.
Raises: database.REFUSAL only where the connection or the session is at fault, not the condition.
See: shared/config/where_condition.py; sql/queries/operation/doctor.sql, doctor_condition_*.
"""

from __future__ import annotations

import re
from itertools import batched
from typing import TYPE_CHECKING, Any, Final

from operate.doctor.workers import Proof
from queued.claiming.whole_leaves import opened
from shared.config.where_condition import fault
from shared.postgres import database
from shared.postgres.coverage import Partid, Serves, judge
from shared.postgres.queries import where_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NOT_IMMUTABLE: Final = "42P17"  # invalid_object_definition, of an index
# The session may not make a temporary table: read_only_sql_transaction, insufficient_privilege.
_MAY_NOT: Final = {"25006", "42501"}
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'")
_DEFAULT: Final = "queue_def_def"
# What is known of a row, as PostgreSQL writes it; strings are passed over whole.
_KNOWN: Final = re.compile(r"(?P<partid>\(metadata ->> '_partid'::text\))|(?P<status>\bstatus\b)|'(?:[^']|'')*'")
_DELIVER: Final = "'DELIVER'::pillarbox.queue_status"
_AT_ONCE: Final = 500  # a SELECT has at most 1,664 outputs


async def prove(
    connection: database.Connection, where: str, partids: Sequence[Partid], leaves: Sequence[database.Row]
) -> Proof:
    """Everything that can be known of a condition; `leaves` as the query doctor_leaves gives them."""
    if found := fault(where):
        return Proof(where, fault=found)
    try:
        async with connection.transaction(force_rollback=True):
            await database.fetch(connection, "doctor_condition_begin")
            await database.fetch(connection, "doctor_condition_table")
            return await _prove(connection, where, partids, leaves)
    except database.REFUSAL as error:
        if getattr(error, "sqlstate", None) not in _MAY_NOT:
            raise
        answers = dict.fromkeys(partids, Serves.PART)
        return Proof(where, unproven=True, answers=answers)


async def _prove(
    connection: database.Connection, where: str, partids: Sequence[Partid], leaves: Sequence[database.Row]
) -> Proof:
    try:
        # Asked for binary answers the driver speaks the extended protocol, which takes one statement only.
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(where_query("doctor_condition_index", where), {})
    except database.REFUSAL as error:
        if connection.closed:
            raise
        if getattr(error, "sqlstate", None) == _NOT_IMMUTABLE:
            return Proof(where, fault="it is not immutable: its answer for a row may change by itself")
        return Proof(where, fault=_of_where(_reason(error)))
    [row] = await database.fetch(connection, "doctor_condition_text")
    texts = {text.replace("''", "'") for text in _TEXT.findall(_KNOWN.sub(_kept, row.text))}
    try:
        answers = await _answers(connection, row.text, [*dict.fromkeys([*partids, *sorted(texts)])])
        [row] = await database.fetch(connection, "doctor_pruning", where=where)
    except database.REFUSAL as error:
        if connection.closed:
            raise
        return Proof(where, fault=f"fails: {_reason(error)}")
    leaves_opened = opened(row[0])
    unpruned = sorted(leaves_opened - homes(answers, leaves))
    return Proof(where, answers=answers, unpruned=unpruned, opened=len(leaves_opened))


async def _answers(connection: database.Connection, text: str, partids: Sequence[Partid]) -> dict[Partid, Serves]:
    """What the condition, as PostgreSQL writes it, claims of each of these ids: what is left when the id is known."""
    found: dict[Partid, Serves] = {}
    for some in batched(partids, _AT_ONCE):
        known: dict[str, Any] = {f"partid{number}": partid for number, partid in enumerate(some)}
        outputs = ", ".join(f"({_with(text, name)})" for name in known)
        [[[plan]]] = await database.fetch_filled(connection, "doctor_condition_answers", {"outputs": outputs}, **known)
        found |= zip(some, map(judge, plan["Plan"]["Output"]), strict=True)
    return found


def _with(text: str, name: str) -> str:
    """The condition with this parameter for the partition id; a percent sign is doubled for the driver."""

    def known(match: re.Match[str]) -> str:
        return f"(%({name})s::text)" if match["partid"] else _DELIVER if match["status"] else match[0]

    return _KNOWN.sub(known, text.replace("%", "%%"))


def _kept(match: re.Match[str]) -> str:
    """The columns of a row that are not known, with their strings."""
    return "" if match["partid"] or match["status"] else match[0]


def homes(answers: Mapping[Partid, Serves], leaves: Sequence[database.Row]) -> set[str]:
    """The leaves that can hold mail of which a condition serves at least a part."""
    bounds = {text.replace("''", "'"): row.name for row in leaves if row.leaf for text in _TEXT.findall(row.bound)}
    of_null = next((row.name for row in leaves if re.search(r"\bNULL\b", _TEXT.sub("", row.bound))), _DEFAULT)
    wanted = [partid for partid, serves in answers.items() if serves is not Serves.NONE]
    return {of_null if partid is None else bounds.get(partid, _DEFAULT) for partid in wanted}


def _of_where(reason: str) -> str:
    """PostgreSQL's reason, about what the operator wrote and not about our index."""
    return reason.replace("index creation on", "a worker's WHERE with").replace("index predicate", "a worker's WHERE")


def _reason(error: Any) -> str:
    return str(error.diag.message_primary or error)
