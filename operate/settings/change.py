"""change — changes settings in one transaction, under an audit row that keeps what they were

Owns: the order of a change: audit row, the change itself, its end; and the preview, which is the same rolled back.
Guarantees: everything and the audit row, or nothing. Triggers keep each row before and after, so the record is what was
    really changed.
Raises: whatever the change raises; then nothing is changed.
See: sql/README.md, "Changing settings"; sql/schema/17_audit.sql.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from operate.shapes.settings import Setting, SettingsPreview
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from operate.queue.act import By

#: How many of what would be changed, or was left, are shown.
FIRST: Final = 10
_NAMED: Final = 10  # of what a command names, in its audit row


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command asks for.

    verb: the audit's word. named: what it is about, as people read it; empty: everything. wanted: how many rows it
    names. argument: the verb's own values, for the audit. undoes: the command that it undoes.
    """

    verb: str
    named: str
    wanted: int = 1
    argument: dict[str, Any] = field(default_factory=dict)
    undoes: int | None = None


@dataclass(slots=True)
class Change:
    """A change under way. preview: what would be changed, once a change that is only shown is over."""

    audit: int
    wanted: int
    preview: SettingsPreview | None = None


@asynccontextmanager
async def changing(
    connection: database.Connection, by: By, asked: Asked, *, dry_run: bool = False
) -> AsyncIterator[Change]:
    """Change settings within this block; with `dry_run` the block is undone, and the change has a preview."""
    async with connection.transaction(force_rollback=dry_run):
        [row] = await database.fetch(
            connection,
            "audit_begin",
            operator=by.operator,
            verb=asked.verb,
            condition=asked.named,
            argument=json.dumps(asked.argument),
            reason=by.reason,
            undoes=asked.undoes,
            wanted=asked.wanted,
        )
        change = Change(row.id, asked.wanted)
        yield change
        await database.fetch(connection, "audit_finish", id=change.audit)
        if dry_run:
            change.preview = await _preview(connection, change, asked)


async def _preview(connection: database.Connection, change: Change, asked: Asked) -> SettingsPreview:
    [counted] = await database.fetch(connection, "setting_count", id=change.audit)
    rows = await database.fetch(connection, "setting_changes", id=change.audit, limit=FIRST)
    return SettingsPreview(
        verb=asked.verb,
        wanted=max(change.wanted, counted.changed),
        changed=counted.changed,
        sample=[Setting.from_row(row) for row in rows],
    )


def names(targets: Sequence[object]) -> str:
    """What a command names, for its audit row, which has each changed row anyway."""
    more = len(targets) - _NAMED
    return ", ".join(map(str, targets[:_NAMED])) + (f" and {more} more" if more > 0 else "")
