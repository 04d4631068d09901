"""conditions — proves what a worker's WHERE is worth

Owns: the order of proof: its form, its columns, that it is immutable, what it says of each partition id, and which
    leaves its claims open.
Guarantees: a condition is run only after its form and its functions were found harmless, since the register's text is
    another process's. Read-only, but for a temporary table that is never committed.
Raises: database.REFUSAL only where the connection or the session is at fault, not the condition.
See: shared/postgres/where_condition.py; sql/queries/doctor.sql, doctor_condition_immutable.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from queued.claiming.whole_leaves import opened
from scripts.doctor.workers import Proof
from shared.postgres import coverage, database
from shared.postgres.coverage import Partid, Serves
from shared.postgres.where_condition import read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.postgres.where_condition import Condition

_NOT_IMMUTABLE: Final = "42P17"  # invalid_object_definition, of an index
# The session may not make a temporary table: read_only_sql_transaction, insufficient_privilege.
_MAY_NOT: Final = {"25006", "42501"}
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'")
_DEFAULT: Final = "queue_def_def"


async def prove(
    connection: database.Connection, where: str, partids: Sequence[Partid], leaves: Sequence[database.Row]
) -> Proof:
    """Everything that can be known of a condition; `leaves` as sql/queries/doctor.sql, doctor_leaves gives them."""
    condition = read(where)
    if condition.faults:
        return Proof(where, fault="; ".join(condition.faults))
    columns = {row.name for row in await database.fetch(connection, "doctor_columns")}
    if strange := sorted(condition.columns - columns):
        return Proof(where, fault=f"queue has no column {', '.join(strange)}")
    try:
        fault = await _immutable(connection, condition)
    except database.REFUSAL as error:
        if getattr(error, "sqlstate", None) not in _MAY_NOT:
            raise
        fault = None
        if doubtful := await coverage.mutable(connection, condition):
            return Proof(
                where, unproven=f"{', '.join(doubtful)} may not be immutable, and this session cannot find out"
            )
    if fault:
        return Proof(where, fault=fault)
    asked = [*dict.fromkeys([*partids, *sorted(condition.texts)])]
    try:
        answers = await coverage.serves(connection, condition, asked)
        [row] = await database.fetch(connection, "doctor_pruning", where=where)
    except database.REFUSAL as error:
        if connection.closed:
            raise
        return Proof(where, fault=f"fails: {_reason(error)}")
    leaves_opened = opened(row[0])
    unpruned = sorted(leaves_opened - homes(answers, leaves))
    return Proof(where, answers=answers, unpruned=unpruned, opened=len(leaves_opened))


async def _immutable(connection: database.Connection, condition: Condition) -> str | None:
    """What PostgreSQL has against the condition as that of an index; None when nothing."""
    async with connection.transaction(force_rollback=True):
        await database.fetch(connection, "doctor_condition_begin")
        await database.fetch(connection, "doctor_condition_table")
        try:
            async with connection.transaction():
                await database.fetch(connection, "doctor_condition_immutable", where=condition.text)
        except database.REFUSAL as error:
            if connection.closed:
                raise
            if getattr(error, "sqlstate", None) == _NOT_IMMUTABLE:
                return "it is not immutable: its answer for a row may change by itself"
            return _reason(error).replace("index predicate", "a worker's WHERE")
    return None


def homes(answers: Mapping[Partid, Serves], leaves: Sequence[database.Row]) -> set[str]:
    """The leaves that can hold mail of which a condition serves at least a part."""
    bounds = {text.replace("''", "'"): row.name for row in leaves if row.leaf for text in _TEXT.findall(row.bound)}
    of_null = next((row.name for row in leaves if re.search(r"\bNULL\b", _TEXT.sub("", row.bound))), _DEFAULT)
    wanted = [partid for partid, serves in answers.items() if serves is not Serves.NONE]
    return {of_null if partid is None else bounds.get(partid, _DEFAULT) for partid in wanted}


def _reason(error: Any) -> str:
    return str(error.diag.message_primary or error)
