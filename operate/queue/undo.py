"""undo — undoes an earlier change, as far as it is still possible

Owns: the commands that can be undone, and the changes of each.
Guarantees: only the command's own changes are undone, so later changes stay: undoing a priority does not put mail on
    hold again. A hold is undone for mail that is still on hold, a release for mail that still waits and is not claimed;
    a due time comes back only where nothing was tried since. A deletion is undone, by a new row for each recipient, for
    mail whose body is still kept. Batches, audit and kills are as in operate.queue.act.
Raises: NotThere; NotNow, also where others keep the rows busy.
See: sql/README.md, "Acting on the queue".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from operate.errors import NotNow, NotThere
from operate.queue import act
from operate.queue.act import LEFT, Change, Done, apply, begin, endless, unwatched, wake
from operate.queue.query import to_the_second
from operate.shapes.mail import UndoPreview
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    from operate.queue.act import By, Enough, Watch

_DELETED: Final = "delete"
#: The commands that can be undone.
UNDOABLE: Final = frozenset({*LEFT, _DELETED})
_TRIES: Final = 100  # of a batch whose rows another session moves at the same moment


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """An earlier command that can be undone. verb: what it did; recipients: how many it changed."""

    id: int
    verb: str
    recipients: int
    change: Change

    def preview(self) -> UndoPreview:
        """What would be changed back."""
        return UndoPreview(wanted=self.recipients, verb=self.verb)


async def plan(connection: database.Connection, audit: int) -> UndoPlan:
    """What undoing this command would change back; refused where it cannot be undone."""
    [earlier] = await database.fetch(connection, "audit_list", id=audit, limit=1, before=None) or [None]
    if earlier is None:
        why = f"queue undo: audit row {audit} does not exist"
        raise NotThere(why, f"{why}; `pillarbox queue audit` lists them")
    if earlier.verb not in UNDOABLE:
        raise NotNow(f"queue undo: audit {audit} is {show(earlier.verb)}, which cannot be undone")
    if earlier.undone:
        raise NotNow(f"queue undo: audit {audit} was undone at {to_the_second(earlier.undone)}")
    [span] = await database.fetch(connection, "audit_span", id=audit)
    change = Change("undo", "queue_restore", LEFT.get(earlier.verb, ()), "changed back", values={"undoes": audit})
    return UndoPlan(audit, earlier.verb, span.recipients, change)


async def undo(
    connection: database.Connection,
    by: By,
    planned: UndoPlan,
    watch: Watch = unwatched,
    *,
    after: int = 0,
    enough: Enough = endless,
) -> Done:
    """Change back what an earlier command changed, as far as it still can be: recipients after this id."""
    change = planned.change
    audit = await begin(connection, by, change, f"audit {planned.id}", planned.recipients, undoes=planned.id)
    done = Done(audit, planned.recipients)
    with watch(change, done) as moved:
        while True:
            portion = await database.fetch(connection, "queue_changed", audit=planned.id, after=after, batch=act.BATCH)
            if not portion:
                break
            after = portion[-1].id
            if planned.verb == _DELETED:
                changed, skipped = await _bring_back(connection, done.audit, portion), 0
            else:
                changed, skipped = await _restore(connection, change, done.audit, portion)
            done.done += changed
            done.skipped += skipped
            moved()
            if enough() and len(portion) == act.BATCH:
                done.cut = after
                return done
    await database.fetch(connection, "audit_finish", id=done.audit)
    return done


async def _bring_back(connection: database.Connection, audit: int, portion: list[database.Row]) -> int:
    """One batch of deleted recipients in one transaction: how many are there again."""
    ids = [row.id for row in portion]
    rows = await database.fetch(connection, "queue_restore_deleted", audit=audit, ids=ids)
    await wake(connection, sorted({row.partid or "" for row in rows}))
    return len(rows)


async def _restore(
    connection: database.Connection, change: Change, audit: int, portion: list[database.Row]
) -> tuple[int, int]:
    """One batch in one transaction: how many are what they were, and how many a worker has in hand."""
    for _ in range(_TRIES):
        try:
            async with connection.transaction():
                statuses = list(change.statuses)
                ids, messages = [row.id for row in portion], [row.message for row in portion]
                rows = await database.fetch(connection, "queue_lock", ids=ids, messages=messages, statuses=statuses)
                free = [row.id for row in rows if not row.sending]
                partids = await apply(connection, change, audit, free)
                [added] = await database.fetch(connection, "audit_add", id=audit, ids=free, seen=len(rows))
        except database.CONFLICT:
            continue  # a worker moved or finished one of the rows at that moment
        await wake(connection, partids)
        return added.changed, len(rows) - added.changed
    raise NotNow(f"audit {audit}: the rows are busy; the same command does the rest")
