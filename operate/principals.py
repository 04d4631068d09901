"""principals — people who sign in to the console: listed, added, disabled and enabled

Guarantees: reads no verifiers. Each change has its audit row and undo (operate/settings/change.py).
    Who may change principals PostgreSQL decides (sql/schema/06_principal.sql): admins.
Raises: Refused and its kinds.
See: scripts/access/principal_store.py for all settings of a principal, by command.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from operate.errors import NotThere, Refused
from operate.settings.change import Asked, changing
from shared.config.smtpd.users import read_name
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from operate.queue.act import By

ROLES: Final = ("viewer", "reviewer", "operator", "admin", "sender")


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
    async with changing(connection, by, Asked("principal add", name)):
        if not await database.fetch(connection, "principal_add", name=name, values=json.dumps(values)):
            raise Refused(f"name: there is a principal {show(name)} already")
    return name


async def disable(connection: database.Connection, by: By, name: str, *, disabled: bool) -> None:
    """Let a principal do nothing any more, or everything again."""
    values = json.dumps({"disabled": disabled})
    async with changing(connection, by, Asked("principal change", name)):
        if not await database.fetch(connection, "principal_change", name=name, values=values):
            raise NotThere(f"there is no principal {show(name)}")
