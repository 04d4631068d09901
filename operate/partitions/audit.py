"""audit — finds faults of the queue's tables, and the steps that repair them

Owns: Fault, and the steps that repair it. Pure but for `read_faults`.
Guarantees: repairs are taken while mail flows: indexes are built concurrently, everything else is a moment's lock.
See: sql/queries/operation/partitions.sql, partitions_audit, which takes the requirements from pillarbox.queue_guard
    itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from operate.partitions.plan import Step
from shared.postgres import database
from shared.postgres.queries import query

if TYPE_CHECKING:
    from collections.abc import Iterable

_SAYS: Final = {
    "trigger": "lacks the trigger {object}: direct changes to it are neither counted nor refused",
    "disabled": "has the trigger {object} switched off",
    "twice": "has a second trigger that counts, {object}: bodies are counted twice",
    "unique": "lacks UNIQUE (id)",
    "storage": "lacks the storage parameter {object}",
    "index": "lacks the index {object} of the queue: claims may read all of it",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with one table of the queue; `fault` is a key of the sentences above.

    `mend` is the statement that repairs it, after those of `builds`, which must not be in a transaction.
    """

    leaf: str
    fault: str
    object: str
    builds: tuple[str, ...]
    mend: str

    def __str__(self) -> str:
        return f"{self.leaf} {_SAYS[self.fault].format(object=self.object)}"


async def read_faults(connection: database.Connection) -> list[Fault]:
    """The faults at this moment; empty when all is well."""
    async with connection.transaction(force_rollback=True):
        await connection.execute(query("partitions_model"))
        rows = await database.fetch(connection, "partitions_audit")
    return [Fault(row.leaf, row.fault, row.object, tuple(row.builds), row.mend) for row in rows]


def repairs(faults: Iterable[Fault]) -> list[Step]:
    """The steps that repair these faults."""
    found: list[Step] = []
    for f in faults:
        if f.builds:
            found.append(Step(f"build the repair: {f}", f.builds, alone=True, tables=(f.leaf,)))
        found.append(Step(f"repair: {f}", (f.mend,), tables=(f.leaf,)))
    return found
