"""result — records the outcome of each attempt, in groups, fenced by the claim token

Owns: turning an Outcome into rows: attempt always, archive when finished, next_retry when deferred.
Guarantees: a result is kept in memory and tried again until PostgreSQL has it, however long an outage lasts; only the
    end of the process can lose it, and then the lease runs out and the mail is sent again (counted as claim.expired).
    It asks the pool itself, so that it finds PostgreSQL again without a claim. Results that an earlier try recorded,
    though its answer was lost, are not recorded again.
    A result whose claim another worker has taken over changes no row but leaves its attempt (claim.lost). While one
    group is recorded the next one gathers, and a few milliseconds longer while others are under way.
    A result PostgreSQL refuses is refused alone, and tried again without its texts; a success then without an attempt.
    If PostgreSQL refuses even that, the result is kept with its claim and tried again every minute (result.refused), so
    that nothing is sent again because of it. Whatever else keeps results from being recorded, a lock of another session
    or a refusal that may pass, they wait apart and hold up no other (queued/backlog.py), however many they are.
    Another timeline of the server is logged (claim.timeline_changed); the fence keeps results from other mail.
See: sql/queries/delivery/result.sql, result_record_if_claimed; sql/README.md, "Crash table".
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from queued import commit_delay
from queued.backlog import Backlog
from queued.claiming.leaves import among
from queued.dsn.requested import Notice, notice
from queued.values import fence
from shared.failure_points import reach
from shared.mail.results import DEAD
from shared.observe import events, tracing
from shared.postgres import database
from shared.postgres.array_text import numbers, texts
from shared.postgres.queries import filled_query
from shared.postgres.timeline import Timeline
from shared.timed_wait import wait_for_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from queued.claiming.leaves import Partid
    from queued.values import Claimed, Fence
from queued.values import OnHold, Result, Spoken

_GROUP = 500
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_CONFLICTS = 3  # in a row, after which each result is tried alone
# Milliseconds that a statement waits for a lock: as connection_patience, and while something is known to be locked.
_PATIENT: Final = 2000
_HURRIED: Final = 20
_AGAIN = 60.0  # seconds after which a result that PostgreSQL refused in every form is tried again
_LEFT_OUT = "(left out: PostgreSQL refused the reply's text)"


class Holder(Protocol):
    """Who holds the recipients whose results are recorded: queued.in_flight.InFlight."""

    @property
    def moving(self) -> int:
        """Recipients claimed whose results are not recorded, and may come within moments."""

    def recorded(self, claimed: Sequence[Claimed]) -> None:
        """The results of these are recorded."""

    def due_again(self, seconds: float) -> None:
        """Some of them are tried again in so many seconds."""


class Recorder:
    """Records results in groups over the pool."""

    def __init__(
        self,
        pool: database.Pool,
        worker: str,
        ahead: int,
        *,
        in_flight: Holder | None = None,
        announce: Callable[[Sequence[int]], None] = lambda _: None,
        notices: bool = True,
        without_notice: Callable[[Claimed], bool] = lambda _: False,
    ) -> None:
        """in_flight: the claimed recipients, until their results are recorded.

        announce: called with the ids of dead letters once they are in the archive and committed.
        notices: whether notices to senders are written down for queued.dsn.send.
        without_notice: the recipients for which no notice is written, even if one was requested.
        """
        self._in_flight = in_flight
        self._announce = announce
        self.notices = notices
        self._without_notice = without_notice
        self._pool = pool
        self._worker = worker
        self._ahead = ahead
        self._backlog = Backlog()
        self._arrived = asyncio.Event()
        self._recorded = asyncio.Event()
        self._recorded.set()
        self._hurried = asyncio.Event()
        self._doubtful: set[Fence] = set()  # id and token of what a try may have recorded unheard
        self._timeline = Timeline()
        self._minimal: set[Fence] = set()  # successes that PostgreSQL refused even without their texts
        self._limit = _GROUP  # of a group
        self._wary = False  # something was locked at the last try

    def add(self, results: Sequence[Result]) -> None:
        """Take results over, if there are any; they are recorded soon."""
        if not results:
            return
        self._backlog.add(results)
        self._recorded.clear()
        self._arrived.set()

    def may_notify(self, claimed: Claimed) -> bool:
        """Whether the sender may be notified of this recipient's result."""
        return self.notices and not self._without_notice(claimed)

    def hurry(self) -> None:
        """PostgreSQL answers: a try that waits for its time is made now."""
        self._hurried.set()

    async def drained(self) -> None:
        """Return when every result taken over is recorded."""
        await self._recorded.wait()

    @property
    def unrecorded(self) -> int:
        """How many results PostgreSQL does not have yet."""
        return len(self._backlog)

    async def run(self) -> None:
        """Record groups until cancelled."""
        pause, conflicts = _FIRST_PAUSE, 0
        while True:
            await self._something()
            group = self._backlog.take(self._limit)
            started = monotonic()
            try:
                reach("result.before_record")
                await self._record(group)
                reach("result.after_record")
            except database.CONFLICT as error:
                # Mostly a row was held or released at that moment; conflicts that go on come from one row.
                conflicts += 1
                if conflicts > _CONFLICTS:
                    self._alone(group, error, started)
                else:
                    self._backlog.back()
            except database.LOCKED as error:
                # The others need not wait behind a lock of another session, on a row or on a message's count, which
                # all results of that message need.
                self._wary = True
                self._alone(group, error, started, locked=True)
            except (*database.OUTAGE, *database.REFUSAL, UnicodeError) as error:
                if not database.is_away(error):
                    self._refused(group, error, started)
                    continue
                self._doubtful.update(map(_key, group))
                self._unrecorded(error, pause)
                self._backlog.back()
                await self._rest(pause)
                pause, self._limit = min(2 * pause, _LONGEST_PAUSE), max(1, self._limit // 2)
            else:
                pause, conflicts = _FIRST_PAUSE, 0
                self._done(group)

    async def _something(self) -> None:
        """Return when there is something to try, and what comes within moments has joined it."""
        while (seconds := self._backlog.seconds()) > 0:
            self._arrived.clear()
            await wait_for_event(self._arrived, None if seconds == math.inf else seconds)
        if ready := self._backlog.ready:
            under_way = 0 if self._in_flight is None else self._in_flight.moving - self._backlog.waiting
            if wait := commit_delay.before_results(under_way, ready):
                await asyncio.sleep(wait)

    def _alone(self, group: list[Result], error: Exception, started: float, *, locked: bool = False) -> None:
        """Try each alone; one that was waits apart from now on."""
        self._limit = 1
        if len(group) > 1:
            self._backlog.back()
            return
        first = not self._backlog.has_apart
        wait = self._backlog.put_apart(monotonic() - started, locked=locked)
        if first or self._backlog.is_apart:  # one line for many that are refused alike
            self._unrecorded(error, wait)

    def _unrecorded(self, error: Exception, seconds: float) -> None:
        events.emit(
            "result.unrecorded", results=self.unrecorded, error=error, seconds=seconds, away=database.is_away(error)
        )

    def _refused(self, group: list[Result], error: Exception, started: float) -> None:
        """PostgreSQL is there, and refused these: perhaps for a value of one, so that each shows alone."""
        if not database.refuses_value(error):
            # It does not depend on the values, and may pass: a read-only server, missing rights.
            self._doubtful.update(map(_key, group))
            self._alone(group, error, started)
        elif len(group) > 1:
            self._backlog.back()
            self._limit = 1
        else:
            self._with_less(group[0], error)

    def _with_less(self, result: Result, error: Exception) -> None:
        """Try the one that was refused for a value with less, or put it aside for a while."""
        plain, mine = _without_texts(result), _key(result)
        if plain != result:
            self._backlog.back([plain])
            then = "recorded without its texts"
        elif result.result == "success" and mine not in self._minimal:
            self._minimal.add(mine)
            self._backlog.back()
            then = "recorded without an attempt"
        else:
            self._minimal.discard(mine)
            self._backlog.put_aside()
            asyncio.get_running_loop().call_later(_AGAIN, self._again, result)
            then = f"kept with its claim, and tried again in {_AGAIN:.0f} s"
        self._limit = 1
        events.emit("result.refused", recipient_id=result.claimed.id, error=error, then=then)

    def _again(self, result: Result) -> None:
        """A result that was put aside waits once more."""
        self._backlog.again(result)
        self._arrived.set()

    def _done(self, group: list[Result]) -> None:
        """These are recorded, and no longer in flight."""
        self._backlog.done()
        self._limit = min(2 * self._limit, _GROUP)
        self._wary = self._wary and self._backlog.wary
        self._doubtful.difference_update(map(_key, group))
        if self._in_flight is not None:
            self._in_flight.recorded([result.claimed for result in group])
            if again := [(r.next_retry - r.claimed.now()).total_seconds() for r in group if r.next_retry is not None]:
                self._in_flight.due_again(min(again))
        self._minimal.difference_update(map(_key, group))
        if not self._backlog:
            self._recorded.set()

    async def _rest(self, seconds: float) -> None:
        """For so long, or until a hurry is signalled."""
        self._hurried.clear()
        await wait_for_event(self._hurried, seconds)

    async def _record(self, group: list[Result]) -> None:
        started = monotonic()
        kept: set[Fence] = set()  # on hold meanwhile, so that they do not expire
        async with self._pool.connection() as connection:
            if changed := await self._timeline.change(connection, doubtful=bool(self._doubtful)):
                events.emit("claim.timeline_changed", before=changed[0], timeline=changed[1], results=self.unrecorded)
            recorded = await self._recorded_before(connection, group)
            if new := [r for r in group if _key(r) not in recorded]:
                rows = await self._settle(connection, new)
                recorded |= dict.fromkeys(map(_key, new), False) | {(row.id, row.token): True for row in rows}
                kept = {(row.id, row.token) for row in rows if row.kept}
                if lost := [r for r in new if not recorded[_key(r)]]:
                    self._doubtful.update(map(_key, new))  # recorded already, should the next statement fail
                    await self._write(connection, "result_record_lost", _results(lost) | _claims(lost))
        events.emit("result.group", results=len(group), seconds=monotonic() - started)
        self._announce([r.claimed.id for r in group if r.result in DEAD and recorded[_key(r)] and _key(r) not in kept])
        for result in group:
            key = _key(result)
            _report(result._replace(result=None) if key in kept else result, ours=recorded[key])

    async def _settle(self, connection: database.Connection, new: list[Result]) -> list[Any]:
        """Record what may be ours; the rows that were. Holds apart, for they move rows from partition to partition."""
        if len(new) == 1 and _key(new[0]) in self._minimal:
            return await self._where_it_is(new, partial(self._finish_bare, connection))
        held = [r for r in new if r.held]
        plain = [r for r in new if not r.held] if held else new
        rows: list[Any] = []
        if plain:
            rows = await self._where_it_is(plain, partial(self._finish, connection))
        if held:
            self._doubtful.update(map(_key, new))  # recorded already, should the next statement fail
            rows = [*rows, *await self._where_it_is(held, partial(self._hold, connection))]
        return rows

    async def _where_it_is(
        self, group: list[Result], record: Callable[[list[Result], list[Partid] | None], Awaitable[list[Any]]]
    ) -> list[Any]:
        """Record in the partitions of the claims; rows that are not there may be on hold: look in the whole queue."""
        rows = await record(group, self._backlog.named(group))
        found = {(row.id, row.token) for row in rows}
        if missed := [r for r in group if _key(r) not in found]:
            self._doubtful.update(map(_key, group))  # recorded already, should the next statement fail
            rows = [*rows, *await record(missed, None)]
        return rows

    async def _finish(
        self, connection: database.Connection, group: list[Result], partids: list[Partid] | None
    ) -> list[Any]:
        where = {"among": among(partids)}
        if all(r.result == "success" for r in group) and not _notified(group, self.may_notify):
            return await self._write(connection, "result_record_success_if_claimed", _results(group), where)
        values = _results(group) | _notices(group, self.may_notify)
        return await self._write(connection, "result_record_if_claimed", values, where)

    async def _finish_bare(
        self, connection: database.Connection, group: list[Result], partids: list[Partid] | None
    ) -> list[Any]:
        values = fence([r.claimed for r in group]) | {"result": group[0].result}
        return await self._write(connection, "result_record_bare", values, {"among": among(partids)})

    async def _hold(
        self, connection: database.Connection, group: list[Result], partids: list[Partid] | None
    ) -> list[Any]:
        values = _results(group) | _claims(group) | _holds(group) | {"partids": partids}
        return await self._write(connection, "result_hold_if_claimed", values)

    async def _recorded_before(self, connection: database.Connection, group: list[Result]) -> dict[Fence, bool]:
        """The results that a try without an answer has recorded, by id and token, and whether the claim was ours."""
        claimed = [r.claimed for r in group if _key(r) in self._doubtful]
        if not claimed:
            return {}
        ids = [c.id for c in claimed]
        # Two statements, for the second must see what those have done for whom the first waited.
        async with self._patience(connection):
            await database.fetch(connection, "result_wait", ids=ids)
        rows = await database.fetch(
            connection,
            "result_recorded_before",
            ids=ids,
            messages=[c.message_id for c in claimed],
            tokens=[c.token for c in claimed],
            since=min(c.claimed_at for c in claimed),
        )
        return {(row.id, row.token): row.ours for row in rows}

    async def _write(
        self, connection: database.Connection, query: str, values: dict[str, Any], parts: dict[str, str] | None = None
    ) -> list[Any]:
        values = {"now": None, "worker": self._worker, **values}
        keep = (parts or {}).get("among") != among(None)
        try:
            async with self._patience(connection):
                return await database.fetch_filled(connection, query, parts or {}, keep=keep, **values)
        except database.NO_PARTITION:
            # The clock jumped past the days made in advance.
            await database.fetch(connection, "history_create", ahead=self._ahead)
        except database.VANISHED:
            pass  # the queue was repartitioned meanwhile
        async with self._patience(connection):
            return await database.fetch_filled(connection, query, parts or {}, keep=keep, **values)

    @asynccontextmanager
    async def _patience(self, connection: database.Connection) -> AsyncIterator[None]:
        """How long the statement of this block may wait for a lock, where that is not what the connection says."""
        hurried = self._wary and not self._backlog.is_apart
        if not hurried and not database.is_pooled(connection):
            yield
            return
        async with connection.transaction():
            milliseconds = str(_HURRIED if hurried else _PATIENT)
            await connection.execute(filled_query("lock_timeout", milliseconds=milliseconds))
            yield


def _key(result: Result) -> Fence:
    return result.claimed.id, result.claimed.token


def _without_texts(result: Result) -> Result:
    """The same result without what peers wrote."""
    return result._replace(
        outcome=replace(result.outcome, text=_LEFT_OUT, enhanced=None),
        remote=None,
        spoken=Spoken(dsn=result.spoken.dsn, last=result.spoken.last),
        held=result.held and OnHold(_LEFT_OUT, result.held.quarantine),
    )


def _report(result: Result, *, ours: bool) -> None:
    c, outcome = result.claimed, result.outcome
    if tracing.on():
        about = {"pillarbox.recipient": c.recipient, "pillarbox.outcome": outcome.kind, "smtp.reply": outcome.text}
        tracing.begin("queued.result", about, parent=c.metadata.get(tracing.KEY)).end()
    if not ours:
        events.emit("claim.lost", recipient_id=c.id, id=c.message_id, to=c.recipient, outcome=outcome.kind)
        return
    kind: str = outcome.kind if result.result != "expired" else "failed"
    held = result.held
    events.emit(
        f"result.{kind if held is None else 'held'}",
        id=c.message_id,
        to=c.recipient,
        transport=c.transportid,
        remote=result.remote,
        result=result.result if kind == "failed" else None,
        quarantine=held and held.quarantine,
        reason=held and held.reason,
        reply=outcome.text,
        uncertain=outcome.uncertain or None,
        tries=c.retry_count,
        seconds=result.duration.total_seconds(),
        delay=(c.now() - c.received).total_seconds(),
        next_retry=result.next_retry and result.next_retry.isoformat(timespec="seconds"),
    )


def _results(group: list[Result]) -> dict[str, Any]:
    """The group by column, as the query's unnest takes it: every column has one element for each result, in order."""
    outcomes = [r.outcome for r in group]
    return {
        "id": numbers(r.claimed.id for r in group),
        "messages__id": texts(r.claimed.message_id.hex for r in group),
        "token": numbers(r.claimed.token for r in group),
        "remote": texts(r.remote for r in group),
        "outcome": texts(o.kind for o in outcomes),
        "scope": texts(o.scope for o in outcomes),
        "uncertain": texts("t" if o.uncertain else "f" for o in outcomes),
        "reply_code": numbers(o.reply_code for o in outcomes),
        "reply_enhanced": texts(o.enhanced for o in outcomes),
        "reply_text": texts(o.text for o in outcomes),
        "seconds": numbers(r.duration.total_seconds() for r in group),
        "tls": texts(r.spoken.tls for r in group),
        "source": texts(r.spoken.source for r in group),
        "conversation": texts(r.spoken.conversation for r in group),
        "result": texts(r.result for r in group),
        "next_retry": texts(r.next_retry.isoformat() if r.next_retry else None for r in group),
    }


def _holds(group: list[Result]) -> dict[str, Any]:
    """Why the recipients go on hold."""
    return {
        "reason": texts(r.held.reason if r.held else None for r in group),
        "quarantine": texts(r.held.quarantine if r.held else None for r in group),
    }


def _claims(group: list[Result]) -> dict[str, Any]:
    """The values of the queue row at the time of the claim."""
    claimed = [r.claimed for r in group]
    return {
        "retry_count": numbers(c.retry_count for c in claimed),
        "partid": texts(c.partid for c in claimed),
        "transportid": texts(c.transportid for c in claimed),
        "jobid": texts(c.jobid for c in claimed),
        "senderdomain": texts(c.sender.domain if c.sender else None for c in claimed),
        "recipientdomain": texts(c.recipient.domain for c in claimed),
        "size": numbers(c.size for c in claimed),
    }


def _notified(group: list[Result], may_notify: Callable[[Claimed], bool]) -> list[tuple[Result, Notice]]:
    """The results of which the sender is notified, and how."""
    return [(r, kind) for r in group if (kind := notice(r)) is not None and may_notify(r.claimed)]


def _notices(group: list[Result], may_notify: Callable[[Claimed], bool]) -> dict[str, Any]:
    """The notices to senders, for the results that need one; `may_notify`: whether the sender may be notified."""
    asked = _notified(group, may_notify)
    late = {id(r) for r, kind in asked if kind == "delayed"}
    return {
        "notice_id": numbers(r.claimed.id for r, _ in asked),
        "notice_token": numbers(r.claimed.token for r, _ in asked),
        "notice": texts(kind for _, kind in asked),
        "until": texts(r.late.isoformat() if r.late else None for r, _ in asked),
        "late": texts("t" if id(r) in late else "f" for r in group),
    }
