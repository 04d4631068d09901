"""suspend — mail that must wait by an operator's word: added, listed, removed

Guarantees: suspended mail waits in the queue, is not tried and not counted as tried; every worker knows at once, or
    at its next poll. Removing a suspend makes its mail due at once. Suspends of queued.yaml are not touched here.
Raises: Refused and its kinds.
See: docs/how-to/suspend-a-destination.md; queued/pacing/suspends.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from operate.errors import NotThere, Refused
from operate.shapes.settings import Suspended
from operate.transports import check_option
from queued.pacing.suspends import release
from shared.config.queued.pacing import FIELDS, match_of
from shared.errors import ConfigError
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


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
    selected: dict[str, list[str]],
    *,
    reason: str,
    who: str | None,
    seconds: float | None,
) -> Suspended:
    """Suspend mail for so long; None: until it is removed."""
    [row] = await database.fetch(
        connection, "suspend_add", selection=json.dumps(selected), reason=reason, who=who, seconds=seconds, now=None
    )
    return Suspended(id=row.id, selection=selected, expires=row.expires)


async def active(connection: database.Connection) -> list[database.Row]:
    """What is suspended by command or by rule; rows have the fields of shapes.settings.Suspend."""
    return await database.fetch(connection, "suspend_active", now=None)


async def remove(connection: database.Connection, ids: Sequence[int] | None) -> list[database.Row]:
    """Let mail go again, at once: of these suspends, or of all. What was removed.

    Refused where one was not there, when the others are removed.
    """
    gone = await database.fetch(connection, "suspend_remove", ids=None if ids is None else list(ids))
    for row in gone:
        try:
            await release(connection, json.dumps(row.selection))
        except database.REFUSAL as error:
            if database.is_outage(error):
                raise
            break  # a login that may not change the queue leaves it to the workers, which do the same
    known = {row.id for row in gone}
    if missing := [str(each) for each in ids or () if each not in known]:
        why = f"suspend remove: no suspend {', '.join(missing)}"
        raise NotThere(why, f"{why}; allowed: those of `suspend list`")
    return gone
