"""undo — undoes an earlier command, as far as it is still possible

Owns: the commands that can be undone, and the changes of each.
Guarantees: only the command's own changes are undone, so later changes stay: undoing a priority does not put mail on
    hold again. A hold is undone for mail that is still on hold, a release for mail that still waits and is not claimed;
    a due time comes back only where nothing was tried since. Batches, audit and kills are as in scripts.queue.act.
Raises: PillarboxError for errors that an operator can correct.
See: sql/README.md, "Acting on the queue".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scripts.output import consent, records
from scripts.queue import act
from scripts.queue.act import LEFT, Change, Done, apply, begin, progress, tell, told_if_interrupted, wake
from scripts.queue.query import cell
from shared.errors import PillarboxError
from shared.how_many import how_many
from shared.postgres import database

if TYPE_CHECKING:
    import argparse

_TRIES: Final = 100  # of a batch whose rows another session moves at the same moment


async def undo(connection: database.Connection, options: argparse.Namespace) -> int:
    """Change back what an earlier command changed, as far as it still can be."""
    [earlier] = await database.fetch(connection, "audit_list", id=options.id, limit=1) or [None]
    if earlier is None:
        raise PillarboxError(f"queue undo: there is no audit row {options.id}; `pillarbox queue audit` lists them")
    if earlier.verb not in LEFT:
        raise PillarboxError(f"queue undo: audit {options.id} is {earlier.verb!r}, which cannot be undone")
    if earlier.undone:
        raise PillarboxError(f"queue undo: audit {options.id} was undone at {cell(earlier.undone)}")
    [span] = await database.fetch(connection, "audit_span", id=options.id)
    change = Change("undo", "queue_restore", LEFT[earlier.verb], "changed back", values={"undoes": options.id})
    if not options.yes:
        if options.json:
            records.one({"wanted": span.recipients, "verb": earlier.verb})
        else:
            print(f"undo {earlier.verb!r} of {how_many(span.recipients, 'recipient')}")
        if not await consent.agreed(options, "queue undo", wanted=span.recipients):
            return 0
    audit = await begin(connection, options, change, f"audit {options.id}", span.recipients, undoes=options.id)
    done = Done(audit, span.recipients)
    with told_if_interrupted(change, done), progress(change.said, span.recipients, quiet=options.json) as bar:
        after = 0
        while True:
            portion = await database.fetch(connection, "queue_changed", audit=options.id, after=after, batch=act.BATCH)
            if not portion:
                break
            after = portion[-1].id
            changed, skipped = await _restore(connection, change, done.audit, portion)
            done.done += changed
            done.skipped += skipped
            bar.update(bar.task_ids[0], completed=done.done + done.skipped)
    await database.fetch(connection, "audit_finish", id=done.audit)
    tell(options, change, done)
    return 0


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
    raise PillarboxError(f"audit {audit}: the rows are busy; the same command does the rest")
