"""send — turns notices to senders into mail

Owns: making notifications in the queue from rows of `notices`: together by message and kind, in time, at a bounded
    rate.
Guarantees: a notification is queued in the transaction that deletes its notices, so that no crash loses or doubles one.
    Notices above the rate wait for the next hour, however often, and are never lost. A notice that PostgreSQL refuses
    waits, stops no other, and is dropped when it was refused for `maintenance.keep.history`. Notifications have the
    null sender, and mail from the null sender gets none: no bounce of a bounce. Each is made by one set of settings
    from its beginning to its end.
See: sql/schema/11_notice.sql; queued/dsn/compose.py; docs/how-to/deliver/bounces.md.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final

from queued.claiming.floor import FullPass
from queued.dsn.compose import compose
from queued.dsn.report import Manner, Original, RecipientReport
from queued.dsn.requested import requiretls
from shared.host_name import own_name
from shared.mail.domain import comparable
from shared.mail.message import Address
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from shared.config.queued.bounces import Bounces

# How long a notice may wait unnoticed; looking costs one glance at the lower end of a small index.
_GLANCE: Final = 1.0
_BATCH: Final = 100  # recipients in one notification
_DISCARDED: Final = 1000  # notices at once
_HELD: Final = 10_000  # notices that one statement lets wait for the next hour
# How late a notice is found whose transaction committed behind others that were due later.
_FULL: Final = 30.0
_PATIENCE: Final = timedelta(hours=1)  # until what could not be made is tried again


async def run(pool: database.Pool, notifier: DsnSender) -> None:
    """Send what is due and look again, until cancelled."""
    while True:
        try:
            async with pool.connection() as connection:
                await notifier.send_due(connection)
        except database.CONFLICT:
            continue
        except (*database.OUTAGE, *database.REFUSAL) as error:
            events.emit("notice.failed", error=database.reason(error), away=database.is_away(error))
        await asyncio.sleep(_GLANCE)


class DsnSender:
    """Sends notifications, or drops the notices, as configured."""

    def __init__(self, settings: Bounces) -> None:
        self._floor = _Floor()
        self.use(settings)

    def use(self, settings: Bounces) -> None:
        """From now on, beginning with the next notification, go by these."""
        self._enabled = settings.enabled
        self._maker = _Maker(settings, self._floor)

    async def send_due(self, connection: database.Connection) -> int:
        """Send one notification after another until none is due or another worker is at it; how many were sent."""
        sent = 0
        while self._enabled:
            more = await self._maker.next(connection)
            if more is None:
                return sent
            sent += more
        await _discard(connection)
        return sent


class _Floor:
    """Below which `due` a look finds no notice, but for a full one now and then (queued/claiming/floor.py)."""

    def __init__(self) -> None:
        self._full = FullPass(_FULL)
        self._due: datetime | None = None

    def take(self) -> datetime | None:
        """From where to look now; None: from the beginning."""
        if self._full.due():
            self._full.done(monotonic())
            self._due = None
        return self._due

    def know(self, due: datetime) -> None:
        """The first one that the look found."""
        self._due = due


class _Maker:
    """Makes notifications by one set of settings."""

    def __init__(self, settings: Bounces, floor: _Floor) -> None:
        self._settings = settings
        self._floor = floor
        hostname = settings.hostname or own_name()
        texts = {kind: text for kind, text in settings.texts.model_dump().items() if text is not None}
        address = settings.address or f"MAILER-DAEMON@{hostname}"
        self._manner = Manner(hostname, settings.name, address, settings.size, texts)

    async def next(self, connection: database.Connection) -> bool | None:
        """One transaction: true when a notification was sent, false when some were put off, None when none is due."""
        rows: Sequence[database.Row] = ()
        gather, floor = self._settings.gather, self._floor.take()
        found = await database.fetch(connection, "notice_due", now=None, floor=floor, gather=gather)
        if not found:
            return None
        try:
            async with connection.transaction():
                [elected] = await database.fetch(connection, "notice_elect")
                if not elected[0]:
                    return None
                rows = await database.fetch(
                    connection, "notice_next", now=None, floor=found[0].due, gather=gather, batch=_BATCH
                )
                if not rows:
                    return None
                self._floor.know(rows[0].floor)
                if await self._held_back(connection, rows[0]):
                    return False
                await self._send(connection, rows)
                return True
        except (*database.REFUSAL, UnicodeError) as error:
            if not database.refuses_value(error):
                raise
            # One that PostgreSQL does not take must not stop the others.
            first, said = (rows[0].messages__id if rows else None), database.reason(error)
            events.emit("notice.refused", id=first, notices=len(rows), error=said)
            if not rows:
                raise
            due = rows[0].at + _PATIENCE
            await database.fetch(connection, "notice_postpone", due=due, at=rows[0].at, ids=[row.id for row in rows])
            return False

    async def _held_back(self, connection: database.Connection, row: database.Row) -> bool:
        """Whether a rate is used up: all it holds for then wait for the next hour, some by each call."""
        rate = self._settings.rate
        if rate.overall is not None and row.sent_to_all >= rate.overall:
            whose: dict[str, str] = {}
        elif rate.persender is not None and row.sent >= rate.persender:
            whose = {"localpart": row.senderlocalpart, "domain": row.senderdomain}
        else:
            return False
        [held] = await database.fetch(
            connection,
            "notice_hold_back_sender" if whose else "notice_hold_back",
            due=row.next_hour + self._settings.gather,
            floor=row.floor,
            batch=_HELD,
            **whose,
        )
        sender = "{localpart}@{domain}".format(**whose) if whose else None
        events.emit("notice.held_back", sender=sender, notices=held.notices, until=row.next_hour.isoformat())
        return True

    async def _send(self, connection: database.Connection, rows: Sequence[database.Row]) -> None:
        first = rows[0]
        # One octet more than is returned whole, so that it shows whether there is more.
        found = await database.fetch(
            connection, "notice_original", message=first.messages__id, limit=self._settings.size + 1
        )
        sender = Address(first.senderlocalpart, comparable(first.senderdomain or ""))
        content, size, smtputf8 = (
            (bytes(found[0].content), found[0].size, found[0].smtputf8) if found else (None, 0, False)
        )
        original = Original(first.messages__id, sender, first.arrived, content, size, smtputf8)
        reports = [_recipient_report(row) for row in rows]
        made = compose(first.kind, original, reports, self._manner, first.id, first.at)
        # This worker has it, whatever the register has heard of it since the configuration changed.
        await database.fetch(connection, "register_transports", transports=[self._settings.transport])
        [row] = await database.fetch(
            connection,
            "notice_send",
            now=None,
            ids=[row.id for row in rows],
            recipients=[str(sender)],
            content=made.content,
            transport=self._settings.transport,
            smtputf8=made.smtputf8,
        )
        copy = self._settings.postmaster if first.kind == "failed" else None
        if copy is not None:
            made = compose(first.kind, original, reports, self._manner, first.id, first.at, to=copy)
            await database.fetch(
                connection,
                "notice_copy",
                recipient=copy,
                content=made.content,
                transport=self._settings.transport,
                smtputf8=made.smtputf8,
                requiretls=any(requiretls(row.metadata) for row in rows),
            )
        events.emit(
            "notice.sent",
            id=row.message,
            kind=first.kind,
            about=original.id,
            to=sender,
            recipients=len(rows),
            copy=copy,
        )


async def _discard(connection: database.Connection) -> None:
    """Drops all notices, because notifications are off: notices keep bodies from being swept."""
    while True:
        [row] = await database.fetch(connection, "notice_discard", batch=_DISCARDED)
        if row.notices < _DISCARDED:
            return


def _recipient_report(row: database.Row) -> RecipientReport:
    return RecipientReport(
        recipient=Address(row.recipientlocalpart, row.recipientdomain),
        metadata=row.metadata,
        remote=row.remote,
        code=row.reply_code,
        status=row.reply_enhanced,
        text=row.reply_text,
        at=row.ts,
        until=row.will_retry_until,
    )
