"""undo — `pillarbox queue undo`: asks for the undoing of an earlier command, and shows what was done

Raises: PillarboxError for errors that an operator can correct.
See: operate/queue/undo.py, which does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.queue import undo as operation
from scripts.output import consent, records
from scripts.queue.act import by, tell, watched
from shared.how_many import how_many

if TYPE_CHECKING:
    import argparse

    from shared.postgres import database


async def undo(connection: database.Connection, options: argparse.Namespace) -> int:
    """Change back what an earlier command changed, as far as it still can be."""
    plan = await operation.plan(connection, options.id)
    if not options.yes:
        if options.json:
            records.one(plan.preview().model_dump())
        else:
            print(f"undo {plan.verb!r} of {how_many(plan.recipients, 'recipient')}")
        if not await consent.agreed(options, "queue undo", wanted=plan.recipients):
            return 0
    done = await operation.undo(connection, by(options), plan, watched(quiet=options.json))
    tell(options, plan.change, done)
    return 0
