"""block — senders of held mail whose further mail is refused

Guarantees: smtpd refuses the mail of a blocked sender as soon as its rule's list asks again (`keep`), where smtpd.yaml
    has such a rule. Each change has its audit row and undo
    (operate/settings/change.py). Reviewers block senders of mail that they may decide about; whole
    domains are for operators.
Raises: Refused and its kinds.
See: sql/schema/18_quarantine.sql; docs/how-to/review/review-in-a-browser.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.errors import NotNow, NotThere, Refused
from operate.queue.act import By
from operate.settings.change import Asked, changing
from shared.config.units import format_duration
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    from datetime import timedelta

    from shared.config.smtpd.settings import SmtpdConfig

#: By this function a list of policy asks for blocked senders.
FUNCTION: Final = "sender_blocked"


def is_asked_for(settings: SmtpdConfig) -> bool:
    """Whether smtpd.yaml has a list of blocked senders."""
    return any(FUNCTION in (each.query or "") for each in settings.policy.lists)


async def block(
    connection: database.Connection, recipient: int, *, whole: bool, reason: str, keep: timedelta | None
) -> str:
    """Block the sender of a held recipient, or its domain, for so long; what is blocked."""
    why = reason.strip()
    if not why:
        raise Refused("a block needs a reason: others read it in the list")
    argument = {"whole": whole} | ({} if keep is None else {"keep": format_duration(keep)})
    async with changing(connection, By(reason=why), Asked("block add", f"recipient {recipient}", argument=argument)):
        rows = await database.fetch(connection, "quarantine_block", id=recipient, whole=whole, reason=why, keep=keep)
        if not rows:
            raise NotNow(f"recipient {recipient} is not held any more")
        target: str | None = rows[0].target
        if target is None:
            raise Refused("the null sender cannot be blocked: notifications of other servers come from it")
    return target


async def listed(connection: database.Connection, *, after: str, limit: int) -> list[database.Row]:
    """Blocked senders after this one, in order."""
    return await database.fetch(connection, "quarantine_blocked", after=after, limit=limit)


async def unblock(connection: database.Connection, target: str) -> None:
    """End a block."""
    async with changing(connection, By(), Asked("block remove", target)):
        if not await database.fetch(connection, "quarantine_unblock", target=target):
            raise NotThere(f"{show(target)} is not blocked")
