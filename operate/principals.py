"""principals — people who sign in to the console: listed, added, disabled and enabled

Owns: how a principal is changed under an audit row, also by command.
Guarantees: reads no verifiers. Each change has its audit row and undo (operate/settings/change.py).
    PostgreSQL lets only admins change principals (sql/schema/06_principal.sql).
Raises: Refused and its kinds.
See: scripts/access/principal_store.py for all settings of a principal, by command.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from operate.errors import NotThere, Refused
from operate.settings.change import Asked, changing
from operate.shapes.settings import PrincipalChanged, SettingsPreview
from shared.config.smtpd.users import read_name
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from operate.queue.act import By

ROLES: Final = ("viewer", "reviewer", "operator", "admin", "sender")


class _Unchanged(Exception):
    """The query changed nothing, so its audit row is rolled back."""


async def listed(connection: database.Connection) -> list[database.Row]:
    """Every principal by name."""
    return await database.fetch(connection, "principals_listed")


async def add_person(
    connection: database.Connection, by: By, name: str, roles: Sequence[str], reviews: Sequence[str] | None
) -> str:
    """Add a person, and return the one spelling of its name; reviews: None is every quarantine that lets it."""
    if unknown := [each for each in roles if each not in ROLES]:
        raise Refused(f"roles: {show(unknown[0])}; allowed: {', '.join(ROLES)}")
    try:
        name = read_name(name)
    except ValueError as error:
        raise Refused(f"name: {error}") from None
    values = {
        "kind": "person",
        "roles": list(roles),
        "reviews": reviews and list(reviews),
        "disabled": False,
        "senders": [],
    }
    if not await changed(connection, by, "add", "principal_add", name, values=json.dumps(values)):
        raise Refused(f"name: there is a principal {show(name)} already")
    return name


async def disable(connection: database.Connection, by: By, name: str, *, disabled: bool) -> None:
    """Let a principal do nothing any more, or everything again."""
    values = json.dumps({"disabled": disabled})
    if not await changed(connection, by, "change", "principal_change", name, values=values):
        raise NotThere(f"principal {show(name)} does not exist")


async def changed(
    connection: database.Connection,
    by: By,
    verb: str,
    query: str,
    name: str,
    *,
    dry_run: bool = False,
    **values: Any,
) -> PrincipalChanged | SettingsPreview | None:
    """Run a query that changes one principal, under an audit row; None, and no audit row, if it changes nothing.

    verb: add, change or remove.
    """
    with suppress(_Unchanged):
        async with changing(connection, by, Asked(f"principal {verb}", name), dry_run=dry_run) as change:
            if not await database.fetch(connection, query, name=name, **values):
                raise _Unchanged
        return change.preview or PrincipalChanged(audit=change.audit, name=name)
    return None
