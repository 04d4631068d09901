"""result — records the outcome of each attempt, in groups, fenced by the claim token

Owns: turning an Outcome into rows: attempt always, archive when finished, next_retry when deferred.
Guarantees: a result is kept in memory and tried again until PostgreSQL has it, however long an outage lasts; only the
    end of the process can lose it, and then the lease runs out and the mail is sent again (counted as claim.expired).
    It asks the pool itself, so that it finds PostgreSQL again without a claim. Results that an earlier try recorded,
    though its answer was lost, are not recorded again.
    A result whose claim another worker has taken over changes no row but leaves its attempt (claim.lost). While one
    group is recorded the next one gathers, and a few milliseconds longer while much is under way.
    A result PostgreSQL refuses is refused alone, and tried again without its texts; a success then without an attempt.
    If PostgreSQL refuses even that, the result is kept with its claim and tried again every minute (result.refused), so
    that nothing is sent again because of it.
    Another timeline of the server is logged (claim.timeline_changed); the fence keeps results from other mail.
See: sql/queries/delivery/result.sql, result_record_if_claimed; sql/README.md, "Crash table".
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice, takewhile
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from queued import commit_delay
from queued.claiming.leaves import Leaves, among
from queued.result_columns import claims, holds, notices, results
from queued.values import fence
from shared.failure_points import reach
from shared.mail.results import DEAD
from shared.observe import events, tracing
from shared.postgres import database
from shared.postgres.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from queued.claiming.leaves import Partid
    from queued.values import Claimed, Fence
from queued.values import OnHold, Result, Spoken

_GROUP = 500
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_CONFLICTS = 3  # in a row, after which each result is tried alone
_AGAIN = 60.0  # seconds after which a result that PostgreSQL refused in every form is tried again
_LEFT_OUT = "(left out: PostgreSQL refused the reply's text)"


class Holder(Protocol):
    """Who holds the recipients whose results are recorded: queued.in_flight.InFlight."""

    @property
    def moving(self) -> int:
        """Recipients claimed whose results are not recorded, and may come within moments."""

    def recorded(self, claimed: Sequence[Claimed]) -> None:
        """The results of these are recorded."""


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
        untold: Callable[[Claimed], bool] = lambda _: False,
    ) -> None:
        """in_flight: the claimed recipients, until their results are recorded.

        announce: called with the ids of dead letters once they are in the archive and committed.
        notices: whether notices to senders are written down for queued.dsn.send.
        untold: the recipients for which no notice is written, even if one was requested.
        """
        self._in_flight = in_flight
        self._announce = announce
        self.notices = notices
        self._untold = untold
        self._pool = pool
        self._worker = worker
        self._ahead = ahead
        self._waiting: deque[Result] = deque()
        self._arrived = asyncio.Event()
        self._recorded = asyncio.Event()
        self._recorded.set()
        self._hurried = asyncio.Event()
        self._doubtful: set[Fence] = set()  # id and token of what a try may have recorded unheard
        self._leaves = Leaves()
        self._timeline = Timeline()
        self._minimal: set[Fence] = set()  # successes that PostgreSQL refused even without their texts
        self._aside: list[Result] = []  # refused in every form, until they are tried again
        self._locked: set[UUID] = set()  # messages of which another session kept something locked at the last try

    def add(self, results: Sequence[Result]) -> None:
        """Take results over, if there are any; they are recorded soon."""
        if not results:
            return
        self._waiting.extend(results)
        self._recorded.clear()
        self._arrived.set()

    def tells(self, claimed: Claimed) -> bool:
        """Whether the sender may be notified of this recipient's result."""
        return self.notices and not self._untold(claimed)

    def hurry(self) -> None:
        """PostgreSQL answers: a try that waits for its time is made now."""
        self._hurried.set()

    async def drained(self) -> None:
        """Return when every result taken over is recorded."""
        await self._recorded.wait()

    @property
    def unrecorded(self) -> int:
        """How many results PostgreSQL does not have yet."""
        return len(self._waiting) + len(self._aside)

    async def run(self) -> None:
        """Record groups until cancelled."""
        pause, limit, conflicts = _FIRST_PAUSE, _GROUP, 0
        while True:
            await self._arrived.wait()
            ready = len(self._waiting)
            under_way = 0 if self._in_flight is None else self._in_flight.moving - ready
            if wait := commit_delay.seconds(under_way, ready):
                await asyncio.sleep(wait)
            group = self._next(limit)
            try:
                reach("result.before_record")
                await self._record(group)
                reach("result.after_record")
            except database.CONFLICT as error:
                conflicts += 1
                pause, limit = await self._conflicted(group, error, conflicts, pause, limit)
                continue
            except database.LOCKED as error:
                # The others need not wait behind a lock of another session, on a row or on a message's count, which
                # all results of that message need.
                if len(group) == 1:
                    events.emit("result.unrecorded", results=1, error=error, seconds=0.0)
                    self._put_back(group[0].claimed.message_id)
                limit = 1 if len(group) > 1 else _GROUP
                continue
            except (*database.OUTAGE, *database.REFUSAL, UnicodeError) as error:
                if not database.refuses_value(error):
                    pause, limit = await self._kept(group, error, pause, limit)
                    continue
                if len(group) == 1:
                    self._refused(group[0], error)
                limit = 1  # it is one of them; alone each shows whether it is the one
                continue
            pause, limit, conflicts = _FIRST_PAUSE, min(2 * limit, _GROUP), 0
            self._done(group)

    async def _conflicted(
        self, group: list[Result], error: Exception, conflicts: int, pause: float, limit: int
    ) -> tuple[float, int]:
        """Mostly a row was held or released at that moment; conflicts that go on come from one row. As `_kept`."""
        if conflicts <= _CONFLICTS:
            return pause, limit
        if len(group) > 1:
            return pause, 1
        await self._postpone(group, error, pause)
        return min(2 * pause, _LONGEST_PAUSE), 1

    async def _kept(self, group: list[Result], error: Exception, pause: float, limit: int) -> tuple[float, int]:
        """These wait: for a server that is back, or for a refusal to pass. The next pause and limit."""
        # A refusal that does not depend on the values may pass: read-only servers, missing rights.
        self._doubtful.update(map(_key, group))
        if len(group) > 1 and not database.is_outage(error):
            return pause, 1  # perhaps it is one of them: alone each shows, and the others need not rest for it
        await self._postpone(group, error, pause)
        return min(2 * pause, _LONGEST_PAUSE), max(1, limit // 2)

    async def _postpone(self, group: list[Result], error: Exception, pause: float) -> None:
        """Rest; the others need not wait for one alone that is refused, or takes too long."""
        events.emit(
            "result.unrecorded", results=len(self._waiting), error=error, seconds=pause, away=database.is_away(error)
        )
        await self._rest(pause)
        if len(group) == 1:
            self._waiting.rotate(-1)

    def _next(self, limit: int) -> list[Result]:
        """The first that wait, of few leaves; alone, where its message was locked when it was last tried."""
        if self._waiting[0].claimed.message_id in self._locked:
            return [self._waiting[0]]
        free = takewhile(lambda result: result.claimed.message_id not in self._locked, self._waiting)
        group = list(islice(free if self._locked else self._waiting, limit))
        chosen = self._leaves.first(group, lambda result: result.claimed)
        if len(chosen) < len(group):
            taken = set(map(id, chosen))
            others = [result for result in group if id(result) not in taken]
            self._waiting = deque([*chosen, *others, *islice(self._waiting, len(group), None)])
        return chosen

    def _refused(self, result: Result, error: Exception) -> None:
        """PostgreSQL refused the first that waits: try it again with less, or put it aside for a while."""
        plain, mine = _without_texts(result), _key(result)
        if plain != result:
            self._waiting[0] = plain
            then = "recorded without its texts"
        elif result.result == "success" and mine not in self._minimal:
            self._minimal.add(mine)
            then = "recorded without an attempt"
        else:
            self._minimal.discard(mine)
            self._aside.append(self._waiting.popleft())
            if not self._waiting:
                self._arrived.clear()
            asyncio.get_running_loop().call_later(_AGAIN, self._again, result)
            then = f"kept with its claim, and tried again in {_AGAIN:.0f} s"
        events.emit("result.refused", recipient_id=result.claimed.id, error=error, then=then)

    def _again(self, result: Result) -> None:
        """Results that were put aside wait once more."""
        self._aside.remove(result)
        self.add([result])

    def _put_back(self, message: UUID) -> None:
        """Results of this message wait behind all others."""
        self._locked.add(message)
        theirs = [result for result in self._waiting if result.claimed.message_id == message]
        others = [result for result in self._waiting if result.claimed.message_id != message]
        self._waiting = deque(others + theirs[1:] + theirs[:1])

    def _done(self, group: list[Result]) -> None:
        """These, the first that wait, are no longer in flight."""
        for _ in group:
            self._waiting.popleft()
        self._doubtful.difference_update(map(_key, group))
        if self._locked:
            self._locked.difference_update(result.claimed.message_id for result in group)
        if self._in_flight is not None:
            self._in_flight.recorded([result.claimed for result in group])
        self._minimal.difference_update(map(_key, group))
        if not self._waiting:
            self._arrived.clear()
            if not self._aside:
                self._recorded.set()

    async def _rest(self, seconds: float) -> None:
        """For so long, or until a hurry is signalled."""
        self._hurried.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurried.wait()

    async def _record(self, group: list[Result]) -> None:
        started = monotonic()
        kept: set[Fence] = set()  # on hold meanwhile, so that they do not expire
        async with self._pool.connection() as connection:
            if changed := await self._timeline.change(connection, doubtful=bool(self._doubtful)):
                events.emit("claim.timeline_changed", before=changed[0], timeline=changed[1], results=self.unrecorded)
            told = await self._recorded_before(connection, group)
            if new := [r for r in group if _key(r) not in told]:
                rows = await self._settle(connection, new)
                told |= dict.fromkeys(map(_key, new), False) | {(row.id, row.token): True for row in rows}
                kept = {(row.id, row.token) for row in rows if row.kept}
                if lost := [r for r in new if not told[_key(r)]]:
                    self._doubtful.update(map(_key, new))  # recorded already, should the next statement fail
                    await self._write(connection, "result_record_lost", results(lost) | claims(lost))
        events.emit("result.group", results=len(group), seconds=monotonic() - started)
        self._announce([r.claimed.id for r in group if r.result in DEAD and told[_key(r)] and _key(r) not in kept])
        for result in group:
            key = _key(result)
            _tell(result._replace(result=None) if key in kept else result, ours=told[key])

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
        """Record in the partitions of the claims, then what is not there in the whole queue: it may be on hold."""
        rows = await record(group, self._leaves.named(r.claimed for r in group))
        found = {(row.id, row.token) for row in rows}
        if missed := [r for r in group if _key(r) not in found]:
            self._doubtful.update(map(_key, group))  # recorded already, should the next statement fail
            rows = [*rows, *await record(missed, None)]
        return rows

    async def _finish(
        self, connection: database.Connection, group: list[Result], partids: list[Partid] | None
    ) -> list[Any]:
        values = results(group) | notices(group, self.tells)
        return await self._write(connection, "result_record_if_claimed", values, {"among": among(partids)})

    async def _finish_bare(
        self, connection: database.Connection, group: list[Result], partids: list[Partid] | None
    ) -> list[Any]:
        values = fence([r.claimed for r in group]) | {"result": group[0].result}
        return await self._write(connection, "result_record_bare", values, {"among": among(partids)})

    async def _hold(
        self, connection: database.Connection, group: list[Result], partids: list[Partid] | None
    ) -> list[Any]:
        values = results(group) | claims(group) | holds(group) | {"partids": partids}
        return await self._write(connection, "result_hold_if_claimed", values)

    async def _recorded_before(self, connection: database.Connection, group: list[Result]) -> dict[Fence, bool]:
        """The results that a try without an answer has recorded, by id and token, and whether the claim was ours."""
        claimed = [r.claimed for r in group if _key(r) in self._doubtful]
        if not claimed:
            return {}
        ids = [c.id for c in claimed]
        # Two statements, for the second must see what those have done for whom the first waited.
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
            return await database.fetch_filled(connection, query, parts or {}, keep=keep, **values)
        except database.NO_PARTITION:
            # The clock jumped past the days made in advance.
            await database.fetch(connection, "history_create", ahead=self._ahead)
        except database.VANISHED:
            pass  # the queue was repartitioned meanwhile
        return await database.fetch_filled(connection, query, parts or {}, keep=keep, **values)


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


def _tell(result: Result, *, ours: bool) -> None:
    c, outcome = result.claimed, result.outcome
    if tracing.on():
        told = {"pillarbox.recipient": c.recipient, "pillarbox.outcome": outcome.kind, "smtp.reply": outcome.text}
        tracing.begin("queued.result", told, parent=c.metadata.get(tracing.KEY)).end()
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
