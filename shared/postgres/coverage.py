"""coverage — which partitions somebody serves

Owns: asking PostgreSQL what a worker's condition says of each partition id, and which ids no living worker serves.
Guarantees: exact for conditions that ask for the partition id alone. One that also asks for other columns serves an id
    in part where that depends on them. A condition from the register is another process's text: it is run only if it
    calls nothing but immutable functions of PostgreSQL's own or ours.
Raises: whatever psycopg raises.
See: shared/postgres/where_condition.py; sql/queries/coverage.sql, coverage_serves.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from shared.postgres import database
from shared.postgres.where_condition import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shared.postgres.where_condition import Condition

#: A partition id; None is mail that has none.
type Partid = str | None


class Serves(Enum):
    """What a condition claims of a partition's mail."""

    ALL = "all"
    PART = "part"  # some of it, or what cannot be told
    NONE = "none"


def configured(count: int, *others: str) -> list[Partid]:
    """The partition ids mail can get: those domains hash to, those named elsewhere, and none."""
    hashed = [str(number) for number in range(1, count + 1)]
    return [*hashed, *sorted(set(others) - set(hashed)), None]


def judge(condition: Condition, answer: bool | None) -> Serves:  # noqa: FBT001 - it is PostgreSQL's answer
    """What PostgreSQL's answer for an id, with all other columns unknown, means for the id's mail."""
    if not condition.sound:
        return Serves.PART
    if answer is None:
        # A WHERE that is NULL selects nothing; unless another column could still make it true.
        return Serves.NONE if condition.exact else Serves.PART
    return Serves.ALL if answer else Serves.NONE


async def serves(
    connection: database.Connection, condition: Condition, partids: Sequence[Partid]
) -> dict[Partid, Serves]:
    """What the condition claims of each of these ids. The caller has made sure that it may be run."""
    rows = await database.fetch(connection, "coverage_serves", where=condition.text, partids=list(partids))
    return {row.partid: judge(condition, row.serves) for row in rows}


async def mutable(connection: database.Connection, condition: Condition) -> list[str]:
    """The functions it names that have a form that is not immutable; without any it may be run."""
    rows = await database.fetch(connection, "coverage_functions", names=sorted(condition.functions))
    return [row.name for row in rows]


async def unserved(connection: database.Connection, partids: Sequence[Partid]) -> list[Partid]:
    """Those of these ids that no living worker of the register serves, not even in part.

    A condition that may not be run, or fails, serves nothing.
    """
    answers = []
    async with connection.transaction():
        await database.fetch(connection, "coverage_begin")
        workers = await database.fetch(connection, "register_seen")
        for condition in {read(worker.where_condition) for worker in workers if worker.live}:
            if condition.faults or await mutable(connection, condition):
                continue
            try:
                async with connection.transaction():
                    answers.append(await serves(connection, condition, partids))
            except database.REFUSAL:
                if connection.closed:
                    raise
    return nobody(partids, answers)


def nobody(partids: Iterable[Partid], answers: Iterable[Mapping[Partid, Serves]]) -> list[Partid]:
    """The ids of which every answer says none."""
    known = list(answers)
    return [partid for partid in partids if all(answer[partid] is Serves.NONE for answer in known)]
