"""spool — the only entrance to the queue: group commit

Owns: the grouping of submissions into transactions, the answer to each submitter, and the only place that may call a
    message committed.
Guarantees: `await submit()` returns only after COMMIT, and raises if there was none. No submission waits for a timer:
    while one group commits, the next one gathers. Large messages do not delay small ones: they are committed apart, one
    group at a time. A message PostgreSQL refuses is committed alone or refused alone; it never takes its group with
    it. The waiting content is bounded in bytes. A submitter that goes away before its group is taken leaves nothing.
    While PostgreSQL is down, `ready` says so without a query, and the committers find out by themselves when it is
    back.
Raises: SpoolUnavailable. After a connection lost during COMMIT the outcome is unknown; it counts as unavailable, so the
    client keeps the message and may submit it twice, which is better than losing it.
See: sql/README.md, "Crash table"; shared/spool/commit.py (the transaction).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakSet

from shared.errors import DatabaseUnavailable, KeyBusy, NotDurable, SpoolFull, SpoolUnavailable, in_words
from shared.failure_points import reach
from shared.observe import events
from shared.postgres import database
from shared.postgres.notifier import Notifier
from shared.spool import commit
from shared.spool.health import Health
from shared.spool.space import Space
from shared.spool.vanished import Vanished
from shared.timed_wait import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from uuid import UUID

    from shared.config.smtpd.settings import Spool as SpoolSettings
    from shared.errors import KeyUsed, NoSpace
    from shared.mail.message import Submission

#: Connections of a process. Small messages use two: while one waits for its COMMIT to reach the disk, the other copies
#: the next group, and more would only make groups smaller. Large ones may use all but one.
COMMITTERS = 4
_FOR_SMALL = 2
# Octets of a group of large messages from which on no more is added: a COMMIT costs little beside them, and the larger
# the groups, the more often all clients wait while PostgreSQL works, and PostgreSQL while all of them send.
_LARGE_GROUP = 1 << 22


@dataclass(slots=True, eq=False)
class _Waiting:
    """A submission and the task that waits for its COMMIT."""

    submission: Submission
    committed: asyncio.Future[None]


class Spool:
    """Commits submissions in groups over a few connections of its own."""

    def __init__(
        self, conninfo: str, settings: SpoolSettings, application_name: str, volumes: Sequence[Path] = ()
    ) -> None:
        """`volumes`: PostgreSQL's, where the server is ours; those that the settings name come first."""
        self._conninfo = conninfo
        self._settings = settings
        self._application_name = application_name
        self._small: deque[_Waiting] = deque()
        self._large: deque[_Waiting] = deque()
        self._in_hand = {True: 0, False: 0}  # groups of large messages, and of small ones
        self._large_last = False  # so that both kinds take turns
        self._waiting_bytes = 0
        self._takeable = asyncio.Event()
        self._probing = False
        self._proven: WeakSet[database.Connection] = WeakSet()  # made, or good for a commit, since the last outage
        self._health = Health(settings.maxlatency.total_seconds())
        self._vanished = Vanished(conninfo, application_name, settings.remembered)
        self._notifier = Notifier(conninfo, f"{application_name} wakeup")
        self._space = Space(conninfo, f"{application_name} volumes", settings.minfree, settings.volumes or volumes)
        self.measure = self._space.run  # parts that run beside the committers
        self.watch = self._vanished.run
        self.notify = self._notifier.run
        self.notified = self._notifier.drained

    def ready(self, size: int = 0) -> SpoolUnavailable | None:
        """Why a new message of `size` octets would not be committed now; None when it would, as far as is known.

        For use before a client is invited to send: costs nothing and needs no query.
        """
        return self._health.trouble(monotonic()) or self._space.room.trouble(size) or self._full(size)

    def room(self, size: int = 0) -> NoSpace | None:
        """Why a message of `size` octets would leave too little space; None where it is not known that it would."""
        return self._space.room.trouble(size)

    @property
    def free(self) -> int | None:
        """Octets left on the volume of PostgreSQL that has least; None where that is not known."""
        return self._space.room.free

    async def prove_durable(self, connection: database.Connection) -> None:
        """Return once all mail that this connection can see is as durable as what `submit` commits.

        SpoolUnavailable if that is not so: PostgreSQL shows a message too whose COMMIT gave up waiting for a standby.
        """
        limit = self._settings.timeout.total_seconds()
        try:
            async with asyncio.timeout(limit):
                await commit.probe(connection, self._settings.synchronous_commit)
        except TimeoutError:
            raise SpoolUnavailable(f"no commit has come back for {limit:g} s") from None

    async def submit(self, submission: Submission) -> None:
        """Return once the submission is committed; SpoolUnavailable if it is not and will not be.

        KeyUsed if its idempotency key is that of an earlier one; KeyBusy if another transaction is about to use it.

        Cancelling gives up waiting, not the submission: before its group is taken nothing of it is kept; after that the
        commit goes on and is logged as spool.reply_lost.
        """
        full = self._full(submission.size)
        if full is not None:
            raise full
        if submission.subject is not None and not self._settings.keepsubject:
            submission = replace(submission, subject=None)
        committed = asyncio.get_running_loop().create_future()
        (self._large if _is_large(submission) else self._small).append(_Waiting(submission, committed))
        self._waiting_bytes += submission.size
        self._takeable.set()
        await committed

    @property
    def pending(self) -> int:
        """Octets of content that wait for their commit to begin."""
        return self._waiting_bytes

    async def prove(self) -> None:
        """Open and close a connection: DatabaseUnavailable now is better than 451 for everybody later.

        The same holds for a login that may not write mail.
        """
        connection = await database.connect(self._conninfo, self._application_name)
        try:
            [row] = await database.fetch(connection, "spool_rights")
            if not row.enough:
                raise database.without_right(connection.info, "no right to INSERT into pillarbox.messages and .queue")
        finally:
            await connection.close()

    async def run(self) -> None:
        """Commit groups until cancelled."""
        connection: database.Connection | None = None
        self._health.committers += 1
        try:
            while True:
                group = self._take()
                if group:
                    connection = await self._settle(connection, group)
                    self._put_back(group)
                elif self._health.down is None or self._probing:
                    self._takeable.clear()
                    await self._takeable.wait()
                else:
                    connection = await self._probe(connection)
        finally:
            self._health.committers -= 1
            if connection is not None:
                await connection.close()

    async def drained(self) -> None:
        """Return when nothing waits to be taken any more."""
        while self._small or self._large:
            await asyncio.wait([w.committed for w in (*self._small, *self._large)])

    def _full(self, size: int) -> SpoolFull | None:
        if self._waiting_bytes and self._waiting_bytes + size > self._settings.maxpending:
            return SpoolFull("too many bytes wait to be committed")
        return None

    def _take(self) -> list[_Waiting]:
        """The next group: what has gathered, within the limits on messages and bytes, without those who hung up."""
        large = self._large_next()
        if large is None:
            return []
        queue = self._large if large else self._small
        group: list[_Waiting] = []
        size = 0
        limits = self._settings.group
        most = min(limits.maxbytes, _LARGE_GROUP) if large else limits.maxbytes
        while queue and len(group) < limits.maxmessages and (not group or size < most):
            waiting = queue.popleft()
            self._waiting_bytes -= waiting.submission.size
            if waiting.committed.cancelled():
                events.emit("spool.abandoned", id=waiting.submission.id)
                continue
            size += waiting.submission.size
            group.append(waiting)
        self._large_last = large
        self._in_hand[large] += bool(group)
        return group

    def _large_next(self) -> bool | None:
        """Whether large messages are next, or small ones; None when nothing can be taken now."""
        large = bool(self._large) and self._in_hand[True] < max(1, self._health.committers - 1)
        small = bool(self._small) and self._in_hand[False] < _FOR_SMALL
        if large and small:
            return not self._large_last
        return large if large or small else None

    def _put_back(self, group: list[_Waiting]) -> None:
        """This group is out of hand: another one of its kind may be taken."""
        self._in_hand[_is_large(group[0].submission)] -= 1
        if self._small or self._large:
            self._takeable.set()

    async def _probe(self, connection: database.Connection | None) -> database.Connection | None:
        """Find out whether PostgreSQL is back, unless mail comes first whose commit will tell as well."""
        self._probing = True
        self._takeable.clear()
        try:
            if await wait_for_event(self._takeable, self._health.pause):
                return connection
            return await self._try(connection)
        finally:
            self._probing = False

    async def _try(self, connection: database.Connection | None) -> database.Connection | None:
        """A commit of nothing; returns the connection if it is good."""
        who = object()
        self._health.begin(who, monotonic())
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                connection = await self._connected(connection)
                await commit.probe(connection, self._settings.synchronous_commit)
        except Exception as error:  # noqa: BLE001 - a probe carries no mail, and is repeated after any error
            await _close(connection)
            self._failed(who, error)
            return None
        else:
            self._health.succeeded(who)
            events.emit("spool.recovered")
            return connection
        finally:
            self._health.ended(who)

    async def _settle(
        self, connection: database.Connection | None, group: list[_Waiting]
    ) -> database.Connection | None:
        """Commit a group and tell each of its submitters; returns the connection if it is still good."""
        who = object()
        self._health.begin(who, monotonic())
        try:
            async with asyncio.timeout(self._settings.timeout.total_seconds()):
                connection = await self._connected(connection)
                used = await self._commit(connection, [waiting.submission for waiting in group])
        except NotDurable as error:
            # It is committed here and will be delivered; a repeated submission causes a duplicate, and loses nothing.
            await _close(connection)
            self._health.ended(who)
            recipients = sum(len(waiting.submission.recipients) for waiting in group)
            events.emit("spool.not_durable", messages=len(group), recipients=recipients, error=error)
            _refuse(group, error)
            self._notifier.wake(commit.partids([waiting.submission for waiting in group]))
            return None
        except Exception as error:  # noqa: BLE001 - what one message provokes must not reach the others
            await _close(connection)
            away_or_late = database.is_outage(error) or isinstance(error, (DatabaseUnavailable, TimeoutError))
            if away_or_late and not _is_busy_key(error, group):
                self._failed(who, error)
                said, away = database.unavailable(error), database.is_away(error)
                events.emit("spool.unavailable", messages=len(group), error=said, away=away)
                _refuse(group, error)
                return None
            self._health.ended(who)  # before each of them begins again
            await self._settle_apart(group, error)
            return None
        else:
            self._health.succeeded(who)
            fresh = [waiting for waiting in group if waiting.submission.id not in used]
            for waiting in group if used else ():
                if waiting.submission.id in used:
                    _refuse_as([waiting], used[waiting.submission.id])
            self._vanished.committed([waiting.submission.id for waiting in fresh])
            _confirm(fresh)
            self._notifier.wake(commit.partids([waiting.submission for waiting in fresh]))
            return connection
        finally:
            self._health.ended(who)

    async def _settle_apart(self, group: list[_Waiting], error: BaseException) -> None:
        """What PostgreSQL refuses, each alone, so that only the one that provokes it is refused."""
        if len(group) > 1:
            for waiting in group:
                await _close(await self._settle(None, [waiting]))
        elif _is_busy_key(error, group):
            _refuse_as(group, KeyBusy(database.reason(error)))
        else:
            events.emit("spool.refused", id=group[0].submission.id, error=error)
            _refuse(group, error)

    def _failed(self, who: object, error: BaseException) -> None:
        self._health.failed(who, str(database.unavailable(error)))
        self._proven.clear()
        self._vanished.away()

    async def _connected(self, connection: database.Connection | None) -> database.Connection:
        """This connection if nothing speaks against it, else a new one: what an outage left behind is not tried."""
        if connection is not None and connection in self._proven and database.is_usable(connection):
            return connection
        await _close(connection)
        made = await database.connect(self._conninfo, self._application_name)
        database.widen(made)
        self._proven.add(made)
        self._vanished.reconnected()
        return made

    async def _commit(self, connection: database.Connection, submissions: list[Submission]) -> dict[UUID, KeyUsed]:
        started = monotonic()
        used = await commit.commit(connection, self._settings.synchronous_commit, submissions)
        reach("spool.after_commit")
        events.emit(
            "spool.group",
            messages=len(submissions),
            recipients=sum(len(s.recipients) for s in submissions),
            bytes=sum(s.size for s in submissions),
            seconds=monotonic() - started,
        )
        return used


def _is_busy_key(error: BaseException, group: list[_Waiting]) -> bool:
    """Whether another transaction, which is not over, has an idempotency key of this group."""
    return isinstance(error, database.LOCKED) and any(waiting.submission.once for waiting in group)


def _is_large(submission: Submission) -> bool:
    return submission.size >= commit.LARGE


def _confirm(group: list[_Waiting]) -> None:
    for waiting in group:
        s = waiting.submission
        if waiting.committed.cancelled():
            events.emit("spool.reply_lost", id=s.id, client=s.senderip)
        else:
            waiting.committed.set_result(None)


def _refuse(group: list[_Waiting], error: BaseException) -> None:
    for waiting in group:
        _refuse_as([waiting], SpoolUnavailable(in_words(error)))


def _refuse_as(group: list[_Waiting], error: Exception) -> None:
    for waiting in group:
        if not waiting.committed.cancelled():
            waiting.committed.set_exception(error)


async def _close(connection: database.Connection | None) -> None:
    """Closing is the surest rollback: in any state of the connection, PostgreSQL forgets the transaction."""
    if connection is not None:
        await connection.close()
