"""result — records what became of each attempt, in groups, fenced by the claim token

Owns: the way from an Outcome to rows: attempt always, archive when finished, next_retry when deferred.
Called by: queued.deliver hands results in; queued.daemon runs it and waits for it when stopping.
Guarantees: a result is kept in memory and tried again until PostgreSQL has it, however long an outage lasts; only the
    end of the process can lose it, and then the lease runs out and the mail is sent again (counted as claim.expired).
    It asks the pool itself, so that it finds PostgreSQL again whether or not anybody claims. What an earlier try
    recorded, though its answer was lost, is not recorded again.
    A result whose claim another worker has taken over changes no row but leaves its attempt (claim.lost). A result
    PostgreSQL refuses is refused alone. Nobody waits on a timer: while one group is recorded, the next one gathers.
See: sql/queries/result_record_if_claimed.sql; sql/README.md, "Crash table".
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from shared import database, events
from shared.array_text import numbers, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from queued.claim import Claimed
    from shared.outcome import Outcome

_GROUP = 500
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Result(NamedTuple):
    """One attempt's end for one recipient: `next_retry` when it is tried again, else `result` says how it finished."""

    claimed: Claimed
    outcome: Outcome
    remote: str | None  # who was talked to last, as host:port or name[address]:port
    duration: timedelta
    result: str | None  # success, failed, expired: the archive's words
    next_retry: datetime | None

    @staticmethod
    def later(claimed: Claimed, outcome: Outcome, wait: timedelta) -> Result:
        """A try that failed on our side, before any peer was asked: again after `wait`, whatever the schedule says."""
        return Result(claimed, outcome, None, timedelta(0), None, claimed.now() + wait)


class Recorder:
    """Records results in groups over the pool."""

    def __init__(self, pool: database.Pool, worker: str, ahead: int) -> None:
        self._pool = pool
        self._worker = worker
        self._ahead = ahead
        self._waiting: deque[Result] = deque()
        self._arrived = asyncio.Event()
        self._recorded = asyncio.Event()
        self._recorded.set()
        self._hurried = asyncio.Event()
        self._doubtful: set[tuple[int, int]] = set()  # id and token of what a try may have recorded unheard
        self.on_recorded: Callable[[Sequence[Claimed]], None] = _nobody_asks

    def add(self, results: Sequence[Result]) -> None:
        """Take results over; they are recorded soon."""
        self._waiting.extend(results)
        self._recorded.clear()
        self._arrived.set()

    def hurry(self) -> None:
        """PostgreSQL answers: a try that waits for its time is made now."""
        self._hurried.set()

    async def drained(self) -> None:
        """Return when every result taken over is recorded."""
        await self._recorded.wait()

    @property
    def unrecorded(self) -> int:
        """How many results PostgreSQL does not have yet."""
        return len(self._waiting)

    async def run(self) -> None:
        """Record groups until cancelled."""
        pause, limit = _FIRST_PAUSE, _GROUP
        while True:
            await self._arrived.wait()
            group = [self._waiting[i] for i in range(min(limit, len(self._waiting)))]
            try:
                await self._record(group)
            except database.CONFLICT:
                continue  # somebody held or released one of the rows at that moment
            except database.LOCKED as error:
                # The others need not wait behind the row somebody keeps locked.
                if len(group) == 1:
                    events.emit("result.unrecorded", results=1, error=error, seconds=0.0)
                    self._waiting.rotate(-1)
                limit = 1
                continue
            except database.BAD_VALUE as error:
                if len(group) > 1:  # one of them; alone each shows whether it is the one
                    limit = 1
                    continue
                events.emit("result.refused", recipient_id=group[0].claimed.id, error=error)
            except (*database.OUTAGE, *database.REFUSAL) as error:
                # What PostgreSQL refuses whatever the values are, it may take later: read-only servers, missing rights.
                self._doubtful.update(map(_key, group))
                events.emit("result.unrecorded", results=len(self._waiting), error=error, seconds=pause)
                await self._rest(pause)
                if len(group) == 1 and not database.is_outage(error):
                    self._waiting.rotate(-1)  # the others need not wait for what is refused
                pause, limit = min(2 * pause, _LONGEST_PAUSE), max(1, limit // 2)
                continue
            pause, limit = _FIRST_PAUSE, min(2 * limit, _GROUP)
            self._done(group)

    def _done(self, group: list[Result]) -> None:
        """These, the first that wait, are out of hand."""
        for _ in group:
            self._waiting.popleft()
        self._doubtful.difference_update(map(_key, group))
        self.on_recorded([result.claimed for result in group])
        if not self._waiting:
            self._arrived.clear()
            self._recorded.set()

    async def _rest(self, seconds: float) -> None:
        """For so long, or until somebody hurries."""
        self._hurried.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurried.wait()

    async def _record(self, group: list[Result]) -> None:
        async with self._pool.connection() as connection:
            told = await self._recorded_before(connection, group)
            if new := [r for r in group if _key(r) not in told]:
                rows = await self._write(connection, "result_record_if_claimed", _columns(new))
                told |= dict.fromkeys(map(_key, new), False) | {(row.id, row.token): True for row in rows}
                if lost := [r for r in new if not told[_key(r)]]:
                    self._doubtful.update(map(_key, new))  # recorded already, should the next statement fail
                    await self._write(connection, "result_record_lost", _columns(lost) | _claim_columns(lost))
        for result in group:
            _tell(result, ours=told[_key(result)])

    async def _recorded_before(
        self, connection: database.Connection, group: list[Result]
    ) -> dict[tuple[int, int], bool]:
        """What a try without an answer has recorded, by id and token, and whether the claim was ours then."""
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

    async def _write(self, connection: database.Connection, query: str, values: dict[str, Any]) -> list[Any]:
        try:
            return await database.fetch(connection, query, now=None, worker=self._worker, **values)
        except database.NO_PARTITION:
            # The clock jumped past the days made in advance.
            await database.fetch(connection, "history_create", now=None, ahead=self._ahead)
        except database.VANISHED:
            pass  # the leaves were cut anew meanwhile
        return await database.fetch(connection, query, now=None, worker=self._worker, **values)


def _key(result: Result) -> tuple[int, int]:
    return result.claimed.id, result.claimed.token


def _nobody_asks(_: Sequence[Claimed]) -> None:
    """Where nobody counts what is in hand."""


def _columns(group: list[Result]) -> dict[str, Any]:
    """The group by column, as the query's unnest takes it."""
    outcomes = [r.outcome for r in group]
    return {
        "id": numbers(r.claimed.id for r in group),
        "token": numbers(r.claimed.token for r in group),
        "remote": texts(r.remote for r in group),
        "outcome": texts(o.kind for o in outcomes),
        "scope": texts(o.scope for o in outcomes),
        "uncertain": texts("t" if o.uncertain else "f" for o in outcomes),
        "reply_code": numbers(o.reply_code for o in outcomes),
        "reply_enhanced": texts(o.enhanced for o in outcomes),
        "reply_text": texts(o.text for o in outcomes),
        "seconds": numbers(r.duration.total_seconds() for r in group),
        "result": texts(r.result for r in group),
        "next_retry": texts(r.next_retry.isoformat() if r.next_retry else None for r in group),
    }


def _claim_columns(group: list[Result]) -> dict[str, Any]:
    """What the queue row would have said, from the time of the claim."""
    claimed = [r.claimed for r in group]
    return {
        "messages__id": texts(c.message_id.hex for c in claimed),
        "retry_count": numbers(c.retry_count for c in claimed),
        "partid": texts(c.partid for c in claimed),
        "transportid": texts(c.transportid for c in claimed),
        "jobid": texts(c.jobid for c in claimed),
        "senderdomain": texts(c.sender.domain if c.sender else None for c in claimed),
        "recipientdomain": texts(c.recipient.domain for c in claimed),
        "size": numbers(c.size for c in claimed),
    }


def _tell(result: Result, *, ours: bool) -> None:
    c, outcome = result.claimed, result.outcome
    if not ours:
        events.emit("claim.lost", recipient_id=c.id, id=c.message_id, to=c.recipient, outcome=outcome.kind)
        return
    kind = outcome.kind if result.result != "expired" else "failed"
    events.emit(
        f"result.{kind}",
        id=c.message_id,
        to=c.recipient,
        transport=c.transportid,
        remote=result.remote,
        result=result.result if kind == "failed" else None,
        reply=outcome.text,
        uncertain=outcome.uncertain or None,
        tries=c.retry_count,
        seconds=result.duration.total_seconds(),
        delay=(c.now() - c.received).total_seconds(),
        next_retry=result.next_retry and result.next_retry.isoformat(timespec="seconds"),
    )
