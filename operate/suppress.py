"""suppress — addresses and domains that get no mail, by an operator's word: added, listed, removed

Guarantees: workers refuse an added address within seconds (suppression.atdelivery), and smtpd refuses it at RCPT where
    smtpd.yaml says so. What is added at once is one transaction: all, or nothing.
Raises: Refused and its kinds.
See: shared/mail/suppression.py for the spelling; docs/how-to/suppression.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.errors import NotThere, Refused
from shared.mail import address, suppression
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta


def target(text: str, place: str) -> str:
    """An address or a domain as the table spells it; `place` is where it was named."""
    try:
        address.parse(text if "@" in text else f"any@{text}")
    except address.AddressRefused as error:
        raise Refused(f"{place}: {text!r}: {error}; allowed: an address or a domain") from None
    return suppression.target(text)


async def add(connection: database.Connection, targets: Iterable[str], *, reason: str, keep: timedelta | None) -> int:
    """Suppress these for so long; None: for ever. How many."""
    every = list(dict.fromkeys(targets))
    [row] = await database.fetch(connection, "suppression_add", targets=every, reason=reason, keep=keep, now=None)
    added: int = row.added
    return added


async def remove(connection: database.Connection, text: str, place: str = "target") -> None:
    """Let an address or a domain get mail again."""
    if not await database.fetch(connection, "suppression_remove", target=target(text, place)):
        why = f"{place}: {text} is not suppressed"
        raise NotThere(why, f"{why}; allowed: those of `pillarbox suppress list`")


async def portion(connection: database.Connection, *, noted: bool, after: str, limit: int) -> list[database.Row]:
    """Suppressions after this one, in order; rows have the fields of shapes.settings.Suppression.

    noted: also what failed, but not yet often enough.
    """
    return await database.fetch(connection, "suppression_list", noted=noted, now=None, after=after, batch=limit)
