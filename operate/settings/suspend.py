"""suspend — mail that must wait by an operator's word: added, listed, removed

Guarantees: suspended mail waits in the queue, is not tried and not counted as tried; every worker knows at once, or
    at its next poll. Removing a suspend makes its mail due at once, after COMMIT. Suspends of queued.yaml are not
    touched here. Each change has its preview, audit row and undo (operate/settings/change.py).
Raises: Refused and its kinds.
See: docs/how-to/deliver/suspend-a-destination.md; queued/pacing/suspends.py.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from operate.errors import NotThere, Refused
from operate.selection import in_words
from operate.settings.change import Asked, changing, names
from operate.shapes.settings import Removed, SettingsPreview, Suspended
from operate.transports import check_option
from queued.pacing.match import merged
from queued.pacing.suspends import AT_ONCE, release
from shared.config.queued.pacing import FIELDS, match_of
from shared.config.units import format_duration
from shared.errors import ConfigError
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from operate.queue.act import By


def selection(folder: Path, given: Mapping[str, Sequence[str]], *, everything: bool) -> dict[str, list[str]]:
    """What to suspend, in the form of the table; `folder` has the configuration that knows the transports."""
    chosen = {name: list(values) for name in FIELDS if (values := given.get(name))}
    if bool(chosen) == everything:
        why = "no mail selected; allowed: any of"
        raise Refused(
            f"suspend: {why} {', '.join(FIELDS)}, or all alone",
            f"suspend add: {why} {', '.join(f'--{name}' for name in FIELDS)}, or --all alone",
        )
    try:
        found = match_of(chosen)
    except ConfigError as error:
        raise Refused(str(error), f"--{error}") from None
    check_option(folder, found.transport)
    return {name: getattr(found, name) for name in chosen}


async def add(
    connection: database.Connection,
    by: By,
    selected: dict[str, list[str]],
    *,
    reason: str,
    who: str | None,
    seconds: float | None,
    dry_run: bool = False,
) -> Suspended | SettingsPreview:
    """Suspend mail for so long; None: until it is removed. Its reason is also that of the audit row."""
    argument = {} if seconds is None else {"for": format_duration(timedelta(seconds=seconds))}
    asked = Asked("suspend add", in_words(selected), argument=argument)
    async with changing(connection, replace(by, reason=reason), asked, dry_run=dry_run) as change:
        [row] = await database.fetch(
            connection, "suspend_add", selection=json.dumps(selected), reason=reason, who=who, seconds=seconds, now=None
        )
    return change.preview or Suspended(audit=change.audit, id=row.id, selection=selected, expires=row.expires)


async def active(connection: database.Connection) -> list[database.Row]:
    """What is suspended by command or by rule; rows have the fields of shapes.settings.Suspend."""
    return await database.fetch(connection, "suspend_active", now=None)


async def remove(
    connection: database.Connection, by: By, ids: Sequence[int] | None, *, dry_run: bool = False
) -> Removed | SettingsPreview:
    """Let mail go again, at once: of these suspends, or of all. Where one is not there, none is removed."""
    wanted = None if ids is None else sorted(set(ids))
    asked = Asked("suspend remove", names(wanted or ()), len(wanted or ()))
    async with changing(connection, by, asked, dry_run=dry_run) as change:
        gone = await database.fetch(connection, "suspend_remove", ids=wanted)
        known = {row.id for row in gone}
        if missing := [str(each) for each in wanted or () if each not in known]:
            noun, verb = ("suspend", "does") if len(missing) == 1 else ("suspends", "do")
            more = "; nothing was removed" if known else ""
            why = f"suspend remove: {noun} {', '.join(missing)} {verb} not exist{more}"
            raise NotThere(why, f"{why}; allowed: those of `suspend list`")
    if change.preview is not None:
        return change.preview
    await resumed(connection, [row.selection for row in gone])
    gone.sort(key=lambda row: row.id)
    return Removed(audit=change.audit, removed=[row.id for row in gone], selections=[row.selection for row in gone])


async def resumed(connection: database.Connection, selections: Sequence[Mapping[str, Sequence[str]]]) -> None:
    """Make the mail due that waited for suspends that are gone."""
    for selection in merged(selections, AT_ONCE):
        try:
            await release(connection, selection)
        except database.REFUSAL as error:
            if database.is_outage(error):
                raise
            break  # a login that may not change the queue leaves it to the workers, which do the same
