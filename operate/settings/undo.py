"""undo — undoes an earlier command that changed settings

Guarantees: each row is what it was before, if it still is as that command left it; what was changed since stays, and is
    named. A schedule that is sent again has its next time from now on, so that nothing missed is sent. Mail of a
    suspend that is gone is due at once. A webhook that is there again gets what happened meanwhile once more. A key
    that was made is revoked; one that was revoked stays so. A removed principal's password and keys are gone.
Raises: NotNow; Refused.
See: sql/README.md, "Changing settings".
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from operate.errors import NotNow, Refused
from operate.queue.query import clock, to_the_second
from operate.settings.change import FIRST, Asked, changing
from operate.settings.suspend import resumed
from operate.shapes.settings import SettingsPreview, SettingsUndone
from shared import cron
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    from operate.queue.act import By

#: The statement that changes back what a command changed, by the first word of its verb.
_UNDO: Final = {
    "suspend": "setting_undo_suspends",
    "suppress": "setting_undo_suppressions",
    "schedule": "setting_undo_schedules",
    "webhooks": "setting_undo_webhooks",
    "block": "setting_undo_blocks",
    "key": "setting_undo_keys",
    "principal": "setting_undo_principals",
}
_ALL: Final = 1_000_000
#: What was committed later than it began may have an earlier time than the position of a webhook.
_COMMITTED_LATE: Final = timedelta(minutes=5)


async def is_of_settings(connection: database.Connection, audit: int) -> bool:
    """Whether this command changed settings; not where there is none of that number."""
    rows = await database.fetch(connection, "audit_list", id=audit, limit=1, before=None)
    return any(is_verb(row.verb) for row in rows)


def is_verb(verb: str) -> bool:
    """Whether a command of this name changes settings."""
    return _noun(verb) in _UNDO


async def undo(
    connection: database.Connection, by: By, audit: int, *, dry_run: bool = False
) -> SettingsUndone | SettingsPreview:
    """Change back what this command changed, or say what would be changed back."""
    [counted] = await database.fetch(connection, "setting_count", id=audit)
    asked = Asked("undo", f"audit {audit}", counted.changed, undoes=audit)
    async with changing(connection, by, asked, dry_run=dry_run) as change:
        # After audit_begin, which waits for another undo of the same command.
        [earlier] = await database.fetch(connection, "audit_list", id=audit, limit=1, before=None)
        noun = _noun(earlier.verb)
        if earlier.verb == "key revoke":
            raise NotNow(
                f"queue undo: audit {audit} is 'key revoke': a revoked key stays revoked; allowed: another key"
            )
        if noun not in _UNDO:
            raise NotNow(f"queue undo: audit {audit} is {show(earlier.verb)}, which cannot be undone")
        if earlier.undone:
            raise NotNow(f"queue undo: audit {audit} was undone at {to_the_second(earlier.undone)}")
        more = {"next": json.dumps(await _next(connection, audit))} if noun == "schedule" else {}
        rows = await database.fetch(connection, _UNDO[noun], undoes=audit, **more)
        if noun == "webhooks":
            for row in rows:
                since = datetime.fromisoformat(earlier.argument["at"]) - _COMMITTED_LATE
                await database.fetch(connection, "webhook_replay", name=row.name, since=since, until=None)
        left = await database.fetch(connection, "setting_left", id=change.audit, undoes=audit, limit=FIRST)
    kept = [row.key for row in left]
    if change.preview is not None:
        return change.preview.model_copy(update={"verb": earlier.verb, "left": kept})
    if noun == "suspend":
        await resumed(connection, [row.selection for row in rows])
    skipped = left[0].every if left else 0
    return SettingsUndone(
        audit=change.audit, wanted=counted.changed, done=counted.changed - skipped, skipped=skipped, left=kept
    )


async def _next(connection: database.Connection, audit: int) -> dict[str, str]:
    """When each schedule is sent next that this command changed or removed."""
    now = await clock(connection)
    found: dict[str, str] = {}
    for row in await database.fetch(connection, "setting_changes", id=audit, limit=_ALL):
        if row.before is None:
            continue
        try:
            found[row.key] = cron.following(row.before["cron"], row.before["timezone"], now).isoformat()
        except cron.CronRefused as error:
            raise Refused(f"{row.key}: {error}") from None
    return found


def _noun(verb: str) -> str:
    return verb.partition(" ")[0]
