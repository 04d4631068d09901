"""suppress — addresses and domains that get no mail, by an operator's word: added, listed, removed

Guarantees: workers refuse an added address within seconds (suppression.atdelivery), and smtpd refuses it at RCPT where
    smtpd.yaml says so. What is added at once is one transaction: all, or nothing. Each change has its preview, audit
    row and undo (operate/settings/change.py).
Raises: Refused and its kinds.
See: shared/mail/suppression.py for the spelling; docs/how-to/deliver/suppression.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from operate.errors import NotThere, Refused
from operate.settings.change import Asked, changing, names
from operate.shapes.settings import SettingsPreview, Suppressed, Target
from shared.config.units import format_duration
from shared.mail import address, suppression
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from operate.queue.act import By


def target(text: str, place: str) -> str:
    """An address or a domain as the table spells it; `place` is where it was named."""
    try:
        address.parse(text if "@" in text else f"any@{text}")
    except address.AddressRefused as error:
        raise Refused(f"{place}: {show(text)}: {error}; allowed: an address or a domain") from None
    return suppression.target(text)


async def add(
    connection: database.Connection,
    by: By,
    targets: Iterable[str],
    *,
    reason: str,
    keep: timedelta | None,
    dry_run: bool = False,
) -> Suppressed | SettingsPreview:
    """Suppress these for so long; None: for ever. The reason is also that of the audit row."""
    every = list(dict.fromkeys(targets))
    argument = {} if keep is None else {"keep": format_duration(keep)}
    asked = Asked("suppress add", names(every), len(every), argument)
    async with changing(connection, replace(by, reason=reason), asked, dry_run=dry_run) as change:
        [row] = await database.fetch(connection, "suppression_add", targets=every, reason=reason, keep=keep, now=None)
    return change.preview or Suppressed(audit=change.audit, suppressed=row.added)


async def remove(
    connection: database.Connection, by: By, text: str, place: str = "target", *, dry_run: bool = False
) -> Target | SettingsPreview:
    """Let an address or a domain get mail again."""
    named = target(text, place)
    async with changing(connection, by, Asked("suppress remove", named), dry_run=dry_run) as change:
        if not await database.fetch(connection, "suppression_remove", target=named):
            why = f"{place}: {text} is not suppressed"
            raise NotThere(why, f"{why}; allowed: those of `pillarbox suppress list`")
    return change.preview or Target(audit=change.audit, target=text)


async def portion(connection: database.Connection, *, noted: bool, after: str, limit: int) -> list[database.Row]:
    """Suppressions after this one, in order; rows have the fields of shapes.settings.Suppression.

    noted: also what failed, but not yet often enough.
    """
    return await database.fetch(connection, "suppression_list", noted=noted, now=None, after=after, batch=limit)
