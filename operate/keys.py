"""keys — API keys: the form of a key, what it may do, and making, listing and revoking them

Owns: the form of a key; the scopes, and the roles of principals that allow the same.
Guarantees: each change has its preview and audit row, and an undo revokes a key that was made
    (operate/settings/change.py). A key is random, shown once, and kept as a digest. What is revoked stays in the
    list. PostgreSQL lets only admins change keys; a login without a principal needs the rights itself.
Raises: NotThere, Refused.
See: sql/schema/21_key.sql; httpd/access/keys.py, which recognizes them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from operate.errors import NotThere, Refused
from operate.settings.change import Asked, changing
from operate.shapes.settings import ApiKey, ApiKeyMade, ApiKeyRevoked, SettingsPreview
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from operate.queue.act import By

#: What each scope lets a key do, as long as its principal has one of these roles.
SCOPES: Final = {
    "send": frozenset({"sender"}),
    "read": frozenset({"viewer", "reviewer", "operator", "admin"}),
    "review": frozenset({"reviewer", "operator", "admin"}),
    "operate": frozenset({"operator", "admin"}),
}
_KEY: Final = re.compile(r"(pb_[0-9a-f]{12})_[A-Za-z0-9_-]{43}")


class Secret(NamedTuple):
    """A key, its prefix, which may be shown, and its digest, which is kept."""

    key: str
    prefix: str
    digest: bytes


def made() -> Secret:
    """A new key: 256 random bits."""
    prefix = f"pb_{secrets.token_hex(6)}"
    key = f"{prefix}_{secrets.token_urlsafe(32)}"
    return Secret(key, prefix, _digest(key))


def read(key: str) -> Secret | None:
    """A text as a key; None if it has another form."""
    match = _KEY.fullmatch(key)
    return Secret(key, match[1], _digest(key)) if match else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


async def add(
    connection: database.Connection,
    by: By,
    principal: str,
    *,
    scopes: Sequence[str] | None,
    expires: datetime | None,
    label: str | None,
    dry_run: bool = False,
) -> ApiKeyMade | SettingsPreview:
    """Make a key for a principal; scopes: None is all that its roles have a use for."""
    rows = await database.fetch(connection, "key_roles", principal=principal)
    if not rows:
        why = f"principal {show(principal)} does not exist"
        raise NotThere(why, f"PRINCIPAL: {why}; `pillarbox principal list` shows them")
    useful = [scope for scope, roles in SCOPES.items() if not roles.isdisjoint(rows[0].roles)]
    granted = useful if scopes is None else [scope for scope in SCOPES if scope in scopes]
    useless = [scope for scope in granted if scope not in useful]
    if useless or not granted:
        has = ", ".join(rows[0].roles) or "none"
        need = ", ".join(sorted(SCOPES[useless[0]])) if useless else "sender, viewer, reviewer, operator, admin"
        what = f"the scope {useless[0]}" if useless else "a key"
        raise Refused(f"{show(principal)} has no role for {what}: it has {has}; allowed: one of {need}")
    secret = made()
    async with changing(connection, by, Asked("key add", principal), dry_run=dry_run) as change:
        await database.fetch(
            connection,
            "key_add",
            prefix=secret.prefix,
            digest=secret.digest,
            principal=principal,
            scopes=granted,
            label=label,
            expires=expires,
        )
    return change.preview or ApiKeyMade(
        audit=change.audit, key=secret.key, prefix=secret.prefix, principal=principal, scopes=granted, expires=expires
    )


async def listed(connection: database.Connection, principal: str | None) -> list[ApiKey]:
    """Every key, of one principal or of all, the newest first."""
    return [ApiKey.from_row(row) for row in await database.fetch(connection, "key_list", principal=principal)]


async def revoke(
    connection: database.Connection, by: By, prefix: str, *, dry_run: bool = False
) -> ApiKeyRevoked | SettingsPreview:
    """End the key with this prefix, for good."""
    async with changing(connection, by, Asked("key revoke", prefix), dry_run=dry_run) as change:
        rows = await database.fetch(connection, "key_revoke", prefix=prefix)
        if not rows:
            why = f"key {show(prefix)} does not exist"
            raise NotThere(why, f"PREFIX: {why}; `pillarbox key list` shows them")
    return change.preview or ApiKeyRevoked(audit=change.audit, prefix=rows[0].prefix, principal=rows[0].principal)
