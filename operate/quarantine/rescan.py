"""rescan — runs the content check again on held mail

Owns: the facts of a held message for rspamd, and the verdicts that count as clean.
Guarantees: without an audit row nothing changes. With it clean mail is released, a portion in one transaction with its
    audit row; mail that is not clean, or too large to be checked, or that rspamd does not answer about, stays held.
Raises: Refused and its kinds.
See: smtpd/policy/content_check.py; docs/how-to/accept/check-content-with-rspamd.md.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from operate.errors import NotNow, NotThere
from operate.queue.act import Change, Span, begin, change_batch
from operate.queue.query import asked
from operate.shapes.mail import Rescanned
from shared.postgres import database
from smtpd.policy.content_check import ContentChecker
from smtpd.policy.session import Envelope

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from uuid import UUID

    from operate.quarantine.access import Narrowed
    from operate.queue.act import By, Done
    from shared.config.smtpd.policy_check import ContentCheck
    from shared.config.smtpd.settings import SmtpdConfig
    from smtpd.policy.facts import CheckResult

PORTION: Final = 200
CHANGE: Final = Change("rescan", "queue_release", ("HOLD",), "released", argument={"release": True})
_AT_ONCE: Final = 4  # messages in memory
_DOWN: Final = "down"


def check_of(settings: SmtpdConfig, file: Path | str) -> ContentCheck:
    """The content check of this configuration, which `file` has; refused where there is none."""
    check = settings.policy.contentcheck
    if check is None:
        raise NotNow(f"quarantine rescan: {file}: policy.contentcheck is not set; rescan needs a content check")
    return check


def answered(rescanned: Sequence[Rescanned]) -> list[Rescanned]:
    """Those that rspamd has answered about, or that need no answer."""
    return [each for each in rescanned if each.action != _DOWN]


class Checks:
    """The content check of a configuration, for mail that is held."""

    def __init__(self, settings: ContentCheck) -> None:
        self._settings = settings
        self._checker = ContentChecker(settings)
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._means = settings.actions.by_name

    async def close(self) -> None:
        """Close the connections."""
        await self._checker.close()

    async def portion(self, connection: database.Connection, rows: list[database.Row]) -> list[Rescanned]:
        """The verdicts on these recipients' messages, each asked once; raises PillarboxError when rspamd is down."""
        by_message: dict[UUID, list[database.Row]] = {}
        for row in rows:
            by_message.setdefault(row.message, []).append(row)
        results = await asyncio.gather(*(self._one(connection, same) for same in by_message.values()))
        of = dict(zip(by_message, results, strict=True))
        return [self._rescanned(row, of[row.message]) for row in rows]

    async def _one(self, connection: database.Connection, rows: list[database.Row]) -> CheckResult | str:
        first = rows[0]
        if first.size > self._settings.maxsize:
            return "too large"
        async with self._free:
            bodies = await database.fetch(connection, "message_bodies", ids=[first.message])
            if not bodies:
                return "no body"
            envelope = Envelope(
                client=str(first.senderip or ""),
                clientname=None,
                helo=first.senderhelo,
                user=first.saslusername,
                sender=first.sender,
                recipients=tuple(row.recipient for row in rows),
                queueid=str(first.message),
            )
            return await self._checker.check(bytes(bodies[0].content), envelope)

    def _rescanned(self, row: database.Row, said: CheckResult | str) -> Rescanned:
        who = {"id": row.id, "sender": row.sender, "recipient": row.recipient}
        if isinstance(said, str):
            return Rescanned(**who, action=said, score=None, symbols={}, clean=False)
        clean = self._means.get(said.action, "accept") == "accept"
        return Rescanned(**who, action=said.action, score=said.score, symbols=dict(said.symbols), clean=clean)


async def portion(
    connection: database.Connection, narrowed: Narrowed, checks: Checks, done: Done, span: Span
) -> tuple[int | None, list[Rescanned]]:
    """Check the next recipients, and release what is clean if `done` has an audit row.

    The highest id looked at (None: there was none), and the verdicts.
    """
    found = await narrowed.asking.fetch(connection, "quarantine_mail", after=span.after, limit=span.batch, most=0)
    rows = [row for row in found if row.id <= span.last]
    if not rows:
        return None, []
    rescanned = await checks.portion(connection, rows)
    if done.audit:
        ids = [each.id for each in rescanned if each.clean]
        left = len(answered(rescanned)) - len(ids)
        done.done += await _release(connection, narrowed.words, done.audit, ids)
        done.skipped += left
        await database.fetch(connection, "audit_add", id=done.audit, ids=[], seen=left)
    return rows[-1].id, rescanned


async def one(
    connection: database.Connection, narrowed: Narrowed, checks: Checks, by: By, *, release: bool
) -> tuple[int, int, Rescanned]:
    """Check one recipient's message, and release it if it is clean and that is wanted.

    The audit row, which has the verdict; how many were released; the verdict.
    """
    rows = await narrowed.asking.fetch(connection, "quarantine_mail", after=0, limit=1, most=0)
    if not rows:
        raise NotThere("quarantine rescan: it is not on hold any more")
    [rescanned] = await checks.portion(connection, rows)
    if not answered([rescanned]):
        raise NotNow("quarantine rescan: the content check does not answer; it stays held; try again later")
    change = replace(CHANGE, argument={"release": release, "verdict": rescanned.action, "score": rescanned.score})
    audit = await begin(connection, by, change, str(narrowed.asking.condition), 1)
    released = await _release(connection, narrowed.words, audit, [rescanned.id] if release and rescanned.clean else [])
    if not released:
        await database.fetch(connection, "audit_add", id=audit, ids=[], seen=1)
    await database.fetch(connection, "audit_finish", id=audit)
    return audit, released, rescanned


async def _release(connection: database.Connection, words: list[str], audit: int, ids: list[int]) -> int:
    """Release these, as far as they still fit; how many."""
    if not ids:
        return 0
    these = await asked(connection, [*(["(", *words, ")"] if words else []), "id=" + ",".join(map(str, ids))])
    _, changed, _ = await change_batch(connection, these, CHANGE, audit, Span(0, ids[-1], len(ids)))
    return changed
