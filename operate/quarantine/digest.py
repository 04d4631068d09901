"""digest — mails a digest of a quarantine's new mail to its reviewers

Owns: the time at which a digest is due, and its text.
Guarantees: at most one digest for each quarantine and period. The recipients in it, the note that it was sent, and the
    message in the queue are one transaction, under a lock on the quarantine and an idempotency key: run twice, at once
    or killed at any instant, each held recipient is in one digest. Without new mail there is no digest. Content of a
    held message is only text in it. With notice.url each person who reviews gets a digest of its own, whose links are
    in the same transaction; of each link only the digest is kept.
Raises: Refused and its kinds.
See: docs/how-to/review/review-quarantined-mail.md; RFC 3834 (Auto-Submitted).
"""

from __future__ import annotations

import secrets
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final

from operate.errors import NotAllowed, NotThere
from operate.mime.render import fields_of
from operate.quarantine.held import BEGINNING
from operate.queue.query import to_the_second
from operate.shapes.mail import Digest
from operate.sign_in import digest as digest_of
from shared.config.units import format_duration
from shared.host_name import own_name
from shared.how_many import how_many
from shared.mail.decode import printable
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from operate.quarantine.access import Access
    from shared.config.smtpd.quarantine import Quarantine
    from shared.config.smtpd.settings import SmtpdConfig

_MOST: Final = 100  # recipients that are listed; the others are counted
_WIDTH: Final = 120  # characters of what a message says


def chosen(access: Access, ids: Collection[str]) -> list[Quarantine]:
    """The quarantines that were asked for; refused for one without notice.to, or that the login may not review."""
    for name in ids:
        known = access.quarantines.get(name)
        if known is None or not known.notice.to:
            those = ", ".join(each.id for each in access.quarantines.values() if each.notice.to) or "none"
            raise NotThere(
                f"quarantine digest: {show(name)} has no quarantines[].notice.to in smtpd.yaml; allowed: {those}"
            )
        if not access.may(name):
            raise NotAllowed(f"quarantine digest: {access.refusal(name)}")
    every = [each for each in access.quarantines.values() if each.notice.to and access.may(each.id)]
    return [each for each in every if each.id in ids or not ids]


def check_spooling(access: Access) -> None:
    """Refuse who may not queue a digest."""
    if access.unspooling:
        raise NotAllowed(f"quarantine digest: {access.unspooling}; see docs/how-to/rights/grant-roles.md")


async def digest(
    connection: database.Connection, settings: SmtpdConfig, quarantine: Quarantine, *, send: bool
) -> Digest:
    """One quarantine's digest; without `send` it is made as well, and rolled back."""
    name, notice = quarantine.id, quarantine.notice
    async with connection.transaction(force_rollback=not send):
        [state] = await database.fetch(connection, "quarantine_digest_begin", quarantine=name, every=notice.every)
        if not state.due:
            every = format_duration(notice.every)
            return _nothing(name, f"sent at {to_the_second(state.sent)}, at most one in {every}")
        await database.fetch(connection, "quarantine_digest_forget", quarantine=name)
        [new] = await database.fetch(connection, "quarantine_digest_tell", quarantine=name)
        if not new.recipients:
            return _nothing(name, "nothing new")
        rows = await database.fetch(connection, "quarantine_digest_rows", quarantine=name, limit=_MOST, most=BEGINNING)
        sender = notice.sender or f"postmaster@{settings.servers[0].hostname or own_name()}"
        text = body(quarantine, new.recipients, rows)
        people = await _people(connection, quarantine)
        of, to = how_many(new.recipients, "recipient"), ", ".join(notice.to)
        if not send:
            said = f"would send {to} a digest of {of}"
            return Digest(quarantine=name, recipients=new.recipients, message=None, text=text, said=said)
        # One for all without links, and one for each person with links of its own.
        shared = [each for each in notice.to if each not in people]
        for those, links in [*([(shared, None)] if shared else []), *(([person], person) for person in people)]:
            own = text if links is None else await _with_links(connection, quarantine, new.recipients, rows, links)
            key = f"digest:{name}:{state.period.isoformat()}" + (f":{links}" if links else "")
            [sent] = await database.fetch(
                connection,
                "quarantine_digest_send",
                quarantine=name,
                sender=sender,
                recipients=those,
                content=message(quarantine, those, sender, new.recipients, own, state.now),
                key=key,
            )
        said = f"sent {to} a digest of {of}, as message {sent.message}"
        return Digest(quarantine=name, recipients=new.recipients, message=sent.message, text=text, said=said)


def _nothing(name: str, said: str) -> Digest:
    return Digest(quarantine=name, recipients=0, message=None, text=None, said=said)


async def _people(connection: database.Connection, quarantine: Quarantine) -> list[str]:
    """Those who get links: none unless an operator asks, for who runs the digest could read them."""
    if quarantine.notice.url is None:
        return []
    [row] = await database.fetch(connection, "quarantine_digest_linking")
    if not row.operator:
        return []
    names = list(quarantine.notice.to)
    found = await database.fetch(connection, "quarantine_digest_people", names=names, quarantine=quarantine.id)
    return [each for each in names if each in {person.name for person in found}]


async def _with_links(
    connection: database.Connection, quarantine: Quarantine, count: int, rows: list[database.Row], person: str
) -> str:
    """The text of a person's digest, with a new link for each recipient."""
    links = {}
    for row in rows:
        token = secrets.token_urlsafe(32)
        links[row.id] = f"{str(quarantine.notice.url).rstrip('/')}/decide?link={token}"
        keep = quarantine.notice.expires
        await database.fetch(
            connection, "quarantine_digest_link", digest=digest_of(token), principal=person, id=row.id, keep=keep
        )
    return body(quarantine, count, rows, links)


def message(quarantine: Quarantine, to: Sequence[str], sender: str, count: int, text: str, now: datetime) -> bytes:
    """The digest as it is queued."""
    made = EmailMessage(policy=SMTP)
    made["From"] = sender
    made["To"] = ", ".join(to)
    made["Subject"] = f"{count} new in quarantine {quarantine.id}"
    made["Date"] = format_datetime(now)
    made["Auto-Submitted"] = "auto-generated"
    made["X-Pillarbox-Quarantine"] = quarantine.id
    made.set_content(text, cte="quoted-printable")
    return made.as_bytes()


def body(quarantine: Quarantine, count: int, rows: list[database.Row], links: Mapping[int, str] | None = None) -> str:
    """The text of a digest: the new recipients, the latest first, and the commands to decide about them."""
    lines = [f"New in quarantine {quarantine.id}: {how_many(count, 'recipient')}."]
    if quarantine.description:
        lines += [printable(quarantine.description)]
    if quarantine.retention:
        lines += [f"Deleted after {format_duration(quarantine.retention)} unless a reviewer decides before."]
    lines += ["Text after a colon comes from the sender: do not trust it.", ""]
    for row in rows:
        subject = fields_of(bytes(row.beginning)).get("Subject", "") if row.beginning is not None else "(no body)"
        lines += [
            f"{row.id}  {to_the_second(row.received)}",
            f"    from: {_said(row.sender or '<>')}",
            f"    to: {_said(row.recipient)}",
            f"    subject: {_said(subject)}",
            f"    why: {_said(row.reason or 'no reason recorded')}",
            *([f"    decide: {links[row.id]}"] if links else []),
        ]
    if count > len(rows):
        lines += [f"… and {count - len(rows)} more: pillarbox quarantine list quarantine={quarantine.id}"]
    if links:
        span = format_duration(quarantine.notice.expires)
        lines += ["", f"Each link works once, for {span}, and is yours alone: do not pass this mail on."]
    example = rows[0].id if rows else "ID"
    lines += [
        "",
        f"Look at one:  pillarbox quarantine show {example}",
        f"Deliver it:   pillarbox quarantine release {example} --yes",
        f"Delete it:    pillarbox quarantine delete {example} --yes",
    ]
    return "\n".join(lines) + "\n"


def _said(text: str) -> str:
    return printable(text, most=_WIDTH)
