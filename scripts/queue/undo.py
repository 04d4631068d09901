"""undo — `pillarbox queue undo`: asks for the undoing of an earlier command, and shows what was done

Raises: PillarboxError for errors that an operator can correct.
See: operate/queue/undo.py and operate/settings/undo.py, which do it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.queue import undo as operation
from operate.settings import undo as of_settings
from operate.shapes.settings import SettingsPreview, SettingsUndone
from scripts.output import consent, records, settings
from scripts.output.reason import by
from scripts.queue.act import tell, watched
from shared.how_many import how_many
from shared.masking import show

if TYPE_CHECKING:
    import argparse

    from shared.postgres import database


async def undo(connection: database.Connection, options: argparse.Namespace) -> int:
    """Change back what an earlier command changed, as far as it still can be."""
    if await of_settings.is_of_settings(connection, options.id):
        return await _undo_settings(connection, options)
    plan = await operation.plan(connection, options.id)
    if not options.yes:
        if options.json:
            records.one(plan.preview().model_dump())
        else:
            print(f"undo {show(plan.verb)} of {how_many(plan.recipients, 'recipient')}")
        if not await consent.agreed(options, "queue undo", wanted=plan.recipients):
            return 0
    done = await operation.undo(connection, by(options), plan, watched(quiet=options.json))
    tell(options, plan.change, done)
    return 0


async def _undo_settings(connection: database.Connection, options: argparse.Namespace) -> int:
    """The same, of a command that changed suspends, suppressions or schedules."""
    if not options.yes:
        preview = await of_settings.undo(connection, by(options), options.id, dry_run=True)
        assert isinstance(preview, SettingsPreview)  # noqa: S101 - as dry_run says
        if options.json:
            records.one(preview.model_dump())
        else:
            settings.show(preview, "undo ")
        if not await consent.agreed(options, "queue undo", wanted=preview.changed):
            return 0
    done = await of_settings.undo(connection, by(options), options.id)
    if options.json:
        records.one(done.model_dump())
    else:
        assert isinstance(done, SettingsUndone)  # noqa: S101 - as dry_run says
        print(
            f"changed back {done.done} of {how_many(done.wanted, 'setting')}{settings.left(done)}; audit {done.audit}"
        )
    return 0
