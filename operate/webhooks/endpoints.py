"""endpoints — adds, lists, changes and removes the endpoints of webhooks

Owns: what operators do with the tables webhooks and webhook_cursors, whatever the interface.
Guarantees: an invalid value is refused before any query, with what is allowed. A secret that is made here is returned
    once and never shown again. What queued.yaml says of an endpoint is not changed here, for a worker would change it
    back; whether it gets events is. Each change has its preview, audit row and undo (operate/settings/change.py).
Raises: Refused, NotThere, NotNow.
See: docs/how-to/send/webhooks.md; sql/README.md, "Webhooks".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from operate.errors import NotNow, NotThere, Refused
from operate.settings.change import Asked, changing
from operate.shapes.settings import SettingsPreview, WebhookName, WebhookSecret
from queued.webhooks import signature
from shared.config.condition.of_event import condition
from shared.config.condition.tree import ConditionError
from shared.config.queued.webhooks import (
    KINDS,
    LARGEST_BATCH,
    NAME_ALLOWED,
    NAME_PATTERN,
    URL_ALLOWED,
    is_endpoint_url,
)
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from operate.queue.act import By

_YEARS: Final = range(1970, 9999)  # of a replay: PostgreSQL knows others that Python cannot read back
_KEPT: Final = 2  # secrets while one replaces another


class Wanted(NamedTuple):
    """An endpoint that is to be. secrets: none, for one that is made; private: may it be on our own networks?"""

    name: str
    url: str
    events: Sequence[str] = KINDS
    condition: str = ""
    secrets: Sequence[str] = ()
    private: bool = False
    batch: int = 1


async def add(
    connection: database.Connection, by: By, wanted: Wanted, *, dry_run: bool = False
) -> WebhookSecret | SettingsPreview:
    """Add an endpoint, which gets what happens from now on; its secret, if it was made here."""
    _check(wanted)
    made = None if wanted.secrets else signature.new_secret()
    secrets = [made] if made else list(wanted.secrets)
    values = wanted._asdict() | {"events": list(dict.fromkeys(wanted.events)), "secrets": secrets}
    async with changing(connection, by, Asked("webhooks add", wanted.name), dry_run=dry_run) as change:
        if not await database.fetch(connection, "webhook_add", **values):
            raise NotNow(f"there is an endpoint {show(wanted.name)} already; allowed: another name")
    return change.preview or WebhookSecret(audit=change.audit, name=wanted.name, secret=made)


async def listed(connection: database.Connection, name: str | None = None) -> list[database.Row]:
    """Every endpoint, or this one, without secrets."""
    rows = await database.fetch(connection, "webhook_list", webhook=name)
    if name is not None and not rows:
        raise _not_there(name)
    return rows


async def remove(
    connection: database.Connection, by: By, name: str, *, dry_run: bool = False
) -> WebhookName | SettingsPreview:
    """Forget an endpoint; an undo needs the time of its position."""
    row = await _changeable(connection, name)
    asked = Asked("webhooks remove", name, argument={"at": row.at.isoformat()})
    async with changing(connection, by, asked, dry_run=dry_run) as change:
        if not await database.fetch(connection, "webhook_remove", name=name):
            raise _not_there(name)
    return change.preview or WebhookName(audit=change.audit, name=name)


async def enable(
    connection: database.Connection, by: By, name: str, *, skip: bool = False, dry_run: bool = False
) -> WebhookName | SettingsPreview:
    """Let an endpoint have events again, where it was, or, with `skip`, from now on; it is tried at once."""
    asked = Asked("webhooks enable", name, argument={"skip": True} if skip else {})
    async with changing(connection, by, asked, dry_run=dry_run) as change:
        if not await database.fetch(connection, "webhook_enable", name=name):
            raise _not_there(name)
        if skip:
            await database.fetch(connection, "webhook_skip", name=name)
    return change.preview or WebhookName(audit=change.audit, name=name)


async def disable(
    connection: database.Connection, by: By, name: str, *, dry_run: bool = False
) -> WebhookName | SettingsPreview:
    """Let an endpoint have no events until it is enabled; its position stays. The reason is that of the audit row."""
    async with changing(connection, by, Asked("webhooks disable", name), dry_run=dry_run) as change:
        if not await database.fetch(connection, "webhook_disable", name=name, reason=by.reason):
            raise _not_there(name)
    return change.preview or WebhookName(audit=change.audit, name=name)


async def replay(connection: database.Connection, name: str, since: datetime, until: datetime | None) -> datetime:
    """Send the events of a span of time once more, with the ids they had; its end."""
    [row] = await listed(connection, name)
    for at in (since, until or row.now):
        if at.year not in _YEARS:
            raise Refused(f"{at.isoformat()} is out of range; allowed: the years {_YEARS[0]} to {_YEARS[-1]}")
    if since >= (until or row.now):
        raise Refused(f"{since.isoformat()} is not before {(until or row.now).isoformat()}; allowed: an earlier time")
    [replayed] = await database.fetch(connection, "webhook_replay", name=name, since=since, until=until)
    end: datetime = replayed.until
    return end


async def rotate(
    connection: database.Connection, by: By, name: str, *, dry_run: bool = False
) -> WebhookSecret | SettingsPreview:
    """Make a new secret, which signs beside the last one until the next rotation."""
    await _changeable(connection, name)
    made = signature.new_secret()
    async with changing(connection, by, Asked("webhooks rotate", name), dry_run=dry_run) as change:
        rows = await database.fetch(connection, "webhook_secrets", name=name)
        if not rows:
            raise _not_there(name)
        await database.fetch(connection, "webhook_rotate", name=name, secrets=[made, *rows[0].secrets][:_KEPT])
    return change.preview or WebhookSecret(audit=change.audit, name=name, secret=made)


def _check(wanted: Wanted) -> None:
    if not re.fullmatch(NAME_PATTERN, wanted.name):
        raise Refused(f"{show(wanted.name)} is not a name of an endpoint; allowed: {NAME_ALLOWED}")
    if not is_endpoint_url(wanted.url):
        raise Refused(f"{show(wanted.url)} is not a URL of an endpoint; allowed: {URL_ALLOWED}")
    for kind in wanted.events or ("",):
        if kind not in KINDS:
            raise Refused(f"{show(kind)} is not a kind of events; allowed: {', '.join(KINDS)}")
    if not 1 <= wanted.batch <= LARGEST_BATCH:
        raise Refused(f"a batch of {wanted.batch}; allowed: 1 to {LARGEST_BATCH}")
    try:
        condition(wanted.condition)
    except ConditionError as error:
        raise Refused(error.reason, str(error)) from None
    for secret in wanted.secrets:
        signature.key_of(secret)


async def _changeable(connection: database.Connection, name: str) -> database.Row:
    [row] = await listed(connection, name)
    if row.origin != "command":
        raise NotNow(f"the endpoint {show(name)} is in queued.yaml; allowed: change it there, and reload the workers")
    return row


def _not_there(name: str) -> NotThere:
    why = f"endpoint {show(name)} does not exist"
    return NotThere(why, f"{why}; allowed: those of `pillarbox webhooks list`")
