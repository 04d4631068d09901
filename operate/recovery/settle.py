"""settle — finishes held recipients that are proven to have been delivered since the backup

Owns: which held recipient a proof is about, and the batches in which they are finished.
Guarantees: only mail on hold that arrived before the recovery began is settled. A proof by message and recipient
    settles only as many as it counts beyond what this database knows as delivered: where it fits more, none of them is
    settled, and they are counted as ambiguous. Batches, audit and kills are as in operate.queue.act.
Raises: Refused and its kinds.
See: sql/README.md, "A restored queue".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from operate.errors import NotNow
from operate.queue import act
from operate.queue.act import Change, Done
from operate.recovery.proof import recipient_key
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from operate.queue.act import By, Watch
    from operate.recovery.proof import Key, Proofs

SETTLE: Final = Change("settle", "recovery_settle", ("HOLD",), "settled")
_NO_RECOVERY: Final = "no recovery is under way"


@dataclass(frozen=True, slots=True)
class Settled:
    """A recipient and how it ended. proof: what says so."""

    id: int
    message: UUID
    recipient: str
    result: str
    error: str | None
    proof: str


@dataclass(slots=True)
class Plan:
    """What would be settled. held: how many recipients were compared; absent: accepted messages that are not here."""

    held: int = 0
    settled: list[Settled] = field(default_factory=list)
    ambiguous: list[int] = field(default_factory=list)
    absent: list[UUID] = field(default_factory=list)


async def plan(connection: database.Connection, proofs: Proofs, history: database.Connection | None = None) -> Plan:
    """Compare all held mail with what is proven; `history`: a connection to a database that knows more."""
    begun = await database.fetch(connection, "recovery_begun")
    if not begun:
        raise NotNow(
            f"recover: {_NO_RECOVERY}", f"recover settle: {_NO_RECOVERY}; `pillarbox recover begin` begins one"
        )
    made = Plan()
    fitting: dict[Key, list[Any]] = defaultdict(list)
    after = 0
    while rows := await database.fetch(
        connection, "recovery_candidates", before=begun[-1].ts, after=after, batch=act.BATCH
    ):
        after = rows[-1].id
        made.held += len(rows)
        ended = await _history(history, rows)
        for row in rows:
            if found := ended.get((row.id, row.message, row.recipient)):
                made.settled.append(
                    Settled(row.id, row.message, row.recipient, found.result, found.last_error, "history")
                )
            elif (row.id, row.message) in proofs.exactly:
                made.settled.append(Settled(row.id, row.message, row.recipient, "success", None, "webhook"))
            elif key := _key(row, proofs):
                fitting[key].append(row)
    await _by_counts(connection, proofs, fitting, made)
    made.settled.sort(key=lambda each: each.id)
    if proofs.accepted:
        absent = await database.fetch(connection, "recovery_absent", messages=sorted(proofs.accepted))
        made.absent = [row.message for row in absent]
    return made


async def settle(connection: database.Connection, by: By, planned: Plan, watch: Watch = act.unwatched) -> Done:
    """Finish what is proven."""
    proofs = ", ".join(f"{count} by {proof}" for proof, count in Counter(e.proof for e in planned.settled).items())
    done = Done(0, len(planned.settled))
    done.audit = await act.begin(connection, by, SETTLE, proofs, done.wanted)
    with watch(SETTLE, done) as moved:
        for first in range(0, len(planned.settled), act.BATCH):
            done.done += await _batch(connection, done.audit, planned.settled[first : first + act.BATCH])
            moved()
    await database.fetch(connection, "audit_finish", id=done.audit)
    return done


async def _batch(connection: database.Connection, audit: int, batch: list[Settled]) -> int:
    """One transaction; how many were settled."""
    async with connection.transaction():
        rows = await database.fetch(
            connection, "recovery_take", ids=[each.id for each in batch], messages=[each.message for each in batch]
        )
        there = {row.id for row in rows}
        batch = [each for each in batch if each.id in there]
        ids = [each.id for each in batch]
        if not ids:
            return 0
        await database.fetch(connection, "queue_remember", audit=audit, ids=ids)
        await database.fetch(
            connection,
            SETTLE.query,
            ids=ids,
            results=[each.result for each in batch],
            errors=[each.error for each in batch],
            proofs=[each.proof for each in batch],
        )
        [added] = await database.fetch(connection, "audit_add", id=audit, ids=ids, seen=len(ids))
    changed: int = added.changed
    return changed


async def _history(history: database.Connection | None, rows: list[Any]) -> dict[tuple[int, UUID, str], Any]:
    """How these recipients ended, where the other database knows it."""
    if history is None:
        return {}
    messages = sorted({row.message for row in rows})
    ended = await database.fetch(history, "recovery_history", messages=messages)
    return {(row.id, row.message, row.recipient): row for row in ended}


def _key(row: Any, proofs: Proofs) -> Key | None:
    """By which a counted proof speaks of this recipient."""
    to = recipient_key(row.recipient)
    keys: Iterable[Key] = ((name, to) for name in (row.message, row.msgid) if name and to)
    return next((key for key in keys if proofs.delivered[key]), None)


async def _by_counts(
    connection: database.Connection, proofs: Proofs, fitting: dict[Key, list[Any]], made: Plan
) -> None:
    """Settle the recipients of each key that has at least as many deliveries that nothing else explains."""
    names = {name for name, _ in fitting}
    known: Counter[Key] = Counter()
    if names:
        rows = await database.fetch(
            connection,
            "recovery_known",
            messages=[name for name in names if not isinstance(name, str)],
            msgids=[name for name in names if isinstance(name, str)],
        )
        for row in rows:
            for name in (row.message, row.msgid):
                if name and (to := recipient_key(row.recipient)):
                    known[(name, to)] += row.n
    for key, rows in fitting.items():
        unexplained = proofs.delivered[key] - known[key]
        if unexplained >= len(rows):
            made.settled += [
                Settled(row.id, row.message, row.recipient, "success", None, "record of the delivery") for row in rows
            ]
        elif unexplained > 0:
            made.ambiguous += [row.id for row in rows]
