"""spool — the one way into the queue: group commit

Owns: one transaction per group of concurrent submissions (COPY into messages and queue, one NOTIFY per partition), and
    the only place that may call a message committed.
Called by: smtpd.receive; later by everything that makes mail (delivery status notifications).
Guarantees: `await submit()` returns only after COMMIT, and raises if there was none. Nobody waits on a timer: while
    one group commits, the next one gathers. A message PostgreSQL refuses is committed alone or refused alone; it never
    takes its group with it. What waits is bounded in bytes. A submitter that goes away before its group is taken
    leaves nothing.
Raises: SpoolUnavailable. After a connection lost during COMMIT the outcome is unknown; it counts as unavailable, so the
    client keeps the message and may submit it twice, which is better than losing it.
See: sql/README.md, "Crash table".
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from psycopg.types.json import Jsonb

from shared import database, events
from shared.errors import DatabaseUnavailable, SpoolFull, SpoolUnavailable
from shared.queries import query
from shared.states import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.message import Submission
    from shared.smtpd_config import Spool as SpoolSettings

_MESSAGE_TYPES = ["uuid", "int4", "bool", "bytea"]
_QUEUE_TYPES = ["uuid", "int4", "text", *["text"] * 8, "int4", "jsonb", "text"]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A submission and the one who waits for its COMMIT."""

    submission: Submission
    committed: asyncio.Future[None]


class Spool:
    """Commits submissions in groups over a few connections of its own."""

    def __init__(self, conninfo: str, settings: SpoolSettings, application_name: str) -> None:
        self._conninfo = conninfo
        self._settings = settings
        self._application_name = application_name
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        # A word from a fixed list in the model, so the text is as safe as our own.
        self._begin = query("spool_begin").replace("{synchronous_commit}", settings.synchronous_commit)

    async def submit(self, submission: Submission) -> None:
        """Return once the submission is committed; SpoolUnavailable if it is not and will not be.

        Cancelling gives up waiting, not the submission: before its group is taken nothing of it is kept; after that the
        commit goes on and is logged as spool.reply_lost.
        """
        if self._waiting_bytes + len(submission.content) > self._settings.maxpending and self._waiting:
            raise SpoolFull("too many bytes wait to be committed")
        committed = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(submission, committed))
        self._waiting_bytes += len(submission.content)
        self._arrived.set()
        await committed

    async def prove(self) -> None:
        """Open and close a connection: DatabaseUnavailable now is better than 451 for everybody later."""
        await (await database.connect(self._conninfo, self._application_name)).close()

    async def run(self) -> None:
        """Commit groups until cancelled."""
        connection: database.Connection | None = None
        try:
            while True:
                await self._arrived.wait()
                group = self._take()
                if group:
                    connection = await self._settle(connection, group)
        finally:
            if connection is not None:
                await connection.close()

    async def drained(self) -> None:
        """Return when nothing waits to be taken any more."""
        while self._waiting:
            await asyncio.wait([w.committed for w in self._waiting])

    def _take(self) -> list[_Waiting]:
        """The next group: what has gathered, within the limits on messages and bytes, without those who hung up."""
        group: list[_Waiting] = []
        size = 0
        limits = self._settings.group
        while self._waiting and len(group) < limits.maxmessages and (not group or size < limits.maxbytes):
            waiting = self._waiting.popleft()
            self._waiting_bytes -= len(waiting.submission.content)
            if waiting.committed.cancelled():
                events.emit("spool.abandoned", id=waiting.submission.id)
                continue
            size += len(waiting.submission.content)
            group.append(waiting)
        if not self._waiting:
            self._arrived.clear()
        return group

    async def _settle(
        self, connection: database.Connection | None, group: list[_Waiting]
    ) -> database.Connection | None:
        """Commit a group and tell each of its submitters; returns the connection if it is still good."""
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                if connection is None or connection.closed:
                    connection = await database.connect(self._conninfo, self._application_name)
                await self._commit(connection, [waiting.submission for waiting in group])
        except Exception as error:  # noqa: BLE001 - what one message provokes must not reach the others
            await _close(connection)
            if database.is_outage(error) or isinstance(error, (DatabaseUnavailable, TimeoutError)):
                events.emit("spool.unavailable", messages=len(group), error=database.unavailable(error))
                _refuse(group, error)
                return None
            if len(group) == 1:
                events.emit("spool.refused", id=group[0].submission.id, error=error)
                _refuse(group, error)
            else:
                for waiting in group:
                    await _close(await self._settle(None, [waiting]))
            return None
        else:
            _confirm(group)
            return connection

    async def _commit(self, connection: database.Connection, submissions: list[Submission]) -> None:
        """The transaction. When this returns, every submission is on disk as synchronous_commit says."""
        started = monotonic()
        await connection.execute(self._begin)
        async with connection.cursor() as cursor:
            async with cursor.copy(query("spool_messages")) as copy:
                copy.set_types(_MESSAGE_TYPES)
                for s in submissions:
                    await copy.write_row((s.id, len(s.content), s.smtputf8, s.content))
            async with cursor.copy(query("spool_queue")) as copy:
                copy.set_types(_QUEUE_TYPES)
                for row in _rows(submissions):
                    await copy.write_row(row)
        partids = {r.partid for s in submissions for r in s.recipients if r.status is Status.DELIVER}
        if partids:
            await connection.execute(query("wakeup_notify"), {"partids": sorted(partids)})
        await connection.execute("COMMIT")
        events.emit(
            "spool.group",
            messages=len(submissions),
            recipients=sum(len(s.recipients) for s in submissions),
            bytes=sum(len(s.content) for s in submissions),
            seconds=monotonic() - started,
        )


def _rows(submissions: Iterable[Submission]) -> Iterable[tuple[object, ...]]:
    """One queue row per recipient, in the order of sql/queries/spool_queue.sql."""
    for s in submissions:
        sender = (s.sender.localpart, s.sender.domain) if s.sender else (None, None)
        size = len(s.content)
        for number, r in enumerate(s.recipients, start=1):
            yield (
                *(s.id, number, r.status.value, s.senderip, s.serverid, s.senderhelo, s.saslusername, *sender),
                *(
                    r.address.localpart,
                    r.address.domain,
                    size,
                    Jsonb({**r.metadata, "_partid": r.partid}),
                    r.transportid,
                ),
            )


def _confirm(group: list[_Waiting]) -> None:
    for waiting in group:
        s = waiting.submission
        if waiting.committed.cancelled():
            events.emit("spool.reply_lost", id=s.id, client=s.senderip)
        else:
            waiting.committed.set_result(None)


def _refuse(group: list[_Waiting], error: BaseException) -> None:
    for waiting in group:
        if not waiting.committed.cancelled():
            waiting.committed.set_exception(SpoolUnavailable(str(error)))


async def _close(connection: database.Connection | None) -> None:
    """Closing is the surest rollback: whatever state the connection is in, PostgreSQL forgets the transaction."""
    if connection is not None:
        await connection.close()
