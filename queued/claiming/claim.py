"""claim — claims due recipients of this worker's partitions

Owns: the claim query and the values made of its rows, the floor under it, the heartbeat of leases, and giving back
    recipients that were not tried.
Guarantees: returned recipients are leased: no other worker takes them before the lease ends, and when it ends the rows
    are due again by themselves. The try is counted before anything is sent. Two workers with overlapping conditions
    never both get a row. What a claim took whose answer was lost with the connection, the next claim takes.
Raises: psycopg's exceptions; the caller distinguishes outage from refusal.
See: sql/queries/delivery/claim.sql; sql/README.md, "Claims".
"""

from __future__ import annotations

import random
import secrets
from collections import Counter
from datetime import timedelta
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from queued.claiming.floor import FullPass
from queued.claiming.leaves import Leaves, among
from shared.mail.domain import comparable
from shared.mail.message import Address
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from shared.config.queued.settings import Claim as ClaimSettings
from queued.values import _NOTHING, Claimed, Fence, fence

# A row may become visible this long after its next_retry, because its transaction began earlier than it committed.
# Rows later than that wait for the next full pass, at most one poll interval away.
_MARGIN = timedelta(seconds=10)
#: The floors of a claim, one for each class of mail that is taken in the order it falls due: none of them.
NO_FLOORS: Final[Mapping[str, Any]] = MappingProxyType(
    dict.fromkeys(("floor_urgent", "floor_urgent_retried", "floor", "floor_retried", "floor_bulk"))
)

#: {ended} of claim.sql. What was lost before waits for its lease: a message that kills its worker does so seldom.
ENDED: Final = "(worker = ANY (%(ended)s::text[]) AND lost_count = 0)"
#: The parts of claim.sql of a worker that has lost nothing.
NOTHING_LOST: Final[Mapping[str, str]] = MappingProxyType({"unanswered": "false", "ended": "false"})

_FRESH: Final = frozenset(("floor_urgent", "floor"))  # the classes of mail that was not tried or parked, but for bulk


def from_row(row: Any, expires: float, since: float) -> Claimed:
    """One row of the claim, or of what looks like it."""
    return Claimed(
        id=row.id,
        token=row.token,
        message_id=row.messages__id,
        actionid=row.actionid,
        sender=None if row.senderdomain is None else Address(row.senderlocalpart, comparable(row.senderdomain)),
        recipient=Address(row.recipientlocalpart, comparable(row.recipientdomain)),
        received=row.ts,
        size=row.size,
        partid=row.partid,
        transportid=row.transportid,
        jobid=row.jobid,
        retry_count=row.retry_count,
        expires=expires,
        claimed_at=row.claimed_at,
        since=since,
        priority=row.priority,
        metadata=row.said or _NOTHING,
        noticed=row.noticed,
        login_refused=row.login_refused,
        leaf=row.leaf,
    )


class Claimer:
    """Claims for one worker.

    A floor is a hint, one for each class: rows finished or taken leave dead entries at the lower end of the index,
    which vacuum cannot remove while a session holds an old snapshot. Starting each scan just below the last claim, or
    below the last full pass where the class had nothing, skips them. A full pass without floors finds whatever lies
    below: leases that ran out, what was released from hold, and late commits. There is one every poll interval, or as
    often as a twentieth of the time allows, where what it has to read has become so much.
    """

    def __init__(self, where: str, worker: str, settings: ClaimSettings, ended: Sequence[str] = ()) -> None:
        """`ended`: workers that have surely ended, whose claims are taken before their lease is over, once."""
        self._where = where
        self._worker = worker
        self._settings = settings
        # As text, whose type PostgreSQL finds out as it does NULL's: one plan serves whichever classes have a floor.
        self._floors: dict[str, str] = {}
        self._full = FullPass(settings.poll.total_seconds())
        self._passed: datetime | None = None  # when the last full pass began, by PostgreSQL's clock
        self._leaves = Leaves()
        self._unanswered: dict[int, float] = {}  # tokens of claims that got no answer, and when their leases end
        self._ended = list(ended)
        self._began = monotonic()
        self._suspect: int | None = None  # the id of the one in flight
        self._suspects_left = True
        #: The highest id of due mail that the last claim may have left, and none has brought yet; 0 for none.
        self.newest = 0

    async def take(self, connection: database.Connection, limit: int, besides: Collection[int] = ()) -> list[Claimed]:
        """Up to `limit` recipients, urgent first, then earliest due; empty when nothing is due. None of these ids.

        What two claims in a row have lost is a suspect, and only one of them is in flight at a time: if it kills the
        worker again, the other suspects have not been in it, and maintenance holds this one (maintain_hold_poison).
        """
        if not self._full.due():
            return await self._take_both(connection, limit, besides)
        started = monotonic()
        try:
            self._floors = {}
            self._suspects_left = True
            [clock] = await database.fetch(connection, "schedule_clock")
            self._passed = clock.now
            return await self._take_both(connection, limit, besides)
        finally:
            self._full.done(started)

    async def _take_both(self, connection: database.Connection, limit: int, besides: Collection[int]) -> list[Claimed]:
        """The next suspect, when none is in flight, and what else is due."""
        claimed: list[Claimed] = []
        self.newest = 0
        if self._suspects_left and self._suspect is None:
            claimed = await self._take(connection, 1, besides, suspects=True)
            self._suspects_left = bool(claimed)
            self._suspect = claimed[0].id if claimed else None
        if len(claimed) == limit:
            return claimed
        try:
            return claimed + await self._take(connection, limit - len(claimed), besides, suspects=False)
        except (*database.OUTAGE, *database.REFUSAL):
            if not claimed:
                raise
            return claimed  # the suspect is ours already; the next claim meets the trouble again

    def start_over(self) -> None:
        """The next claim is a full pass: mail that became due meanwhile may be below the floor."""
        self._full.hurry()

    def done(self, claimed: Iterable[Claimed]) -> bool:
        """These are no longer in flight; true when the suspect was among them, so that the next one may be taken."""
        if self._suspect is None or all(c.id != self._suspect for c in claimed):
            return False
        self._suspect = None
        return self._suspects_left

    async def _take(
        self, connection: database.Connection, limit: int, besides: Collection[int], *, suspects: bool
    ) -> list[Claimed]:
        started = monotonic()
        # By chance, so that claims of one row share too.
        ordinary = min(limit, int(self._settings.ordinary * limit + random.random()))
        retried = int(self._settings.retried * limit + random.random())
        token = secrets.randbits(63)
        if started - self._began > self._settings.lease.total_seconds():
            self._ended = []  # their leases are over
        self._unanswered = {lost: ends for lost, ends in self._unanswered.items() if ends > started}
        try:
            rows = await _ask(
                connection,
                _besides(self._where, besides),
                {"unanswered": among_tokens(self._unanswered), "ended": ENDED if self._ended else "false"},
                keep=not besides and not self._unanswered,
                now=None,
                **{**NO_FLOORS, **self._floors},
                batch=limit,
                token=token,
                worker=self._worker,
                lease=self._settings.lease,
                suspects=suspects,
                ordinary=ordinary,
                retried=retried,
                ended=self._ended,
            )
        except database.OUTAGE as error:
            if database.is_away(error):  # it may have been committed
                self._unanswered[token] = started + self._settings.lease.total_seconds()
            raise
        if not suspects:
            ended = self._raise_floors(rows, limit, retried, ordinary)
            if rows and (not ended >= _FRESH or (rows[-1].priority < 0 and "floor_bulk" not in ended)):
                self.newest = rows[-1].newest
        if not rows:
            return []
        expires = started + self._settings.lease.total_seconds()
        since = (
            monotonic()
        )  # not before the claim: time by this reckoning may lag, and never runs ahead of PostgreSQL's
        for row in rows:
            if row.lost_token is not None:
                events.emit("claim.expired", recipient_id=row.id, token=row.lost_token)
        events.emit("claim.taken", recipients=len(rows), token=rows[0].token)
        return [from_row(row, expires, since) for row in rows]

    def _raise_floors(self, rows: Sequence[Any], limit: int, retried: int, ordinary: int) -> set[str]:
        """Each class begins below the first of its rows the next time; one that had none, below the last full pass.

        Returns the classes that this claim came to the end of.
        """
        taken: Counter[str] = Counter()
        for row in reversed(rows):
            name = _class(row.priority, tried=row.tried_before)
            self._floors[name] = (row.next_retry - _MARGIN).isoformat()
            taken[name] += 1
        ended = exhausted(taken, limit, retried, ordinary)
        if self._passed is not None:
            for name in ended - self._floors.keys():
                self._floors[name] = (self._passed - _MARGIN).isoformat()
        return ended

    async def extend(self, connection: database.Connection, claimed: Sequence[Claimed]) -> dict[Fence, bool]:
        """Heartbeat: renew these leases. Those that are still ours, and whether their lease was extended.

        It was not where another session has the row locked; one that is missing belongs to another claim now.
        """
        rows = await self._fenced(connection, "claim_extend_if_ours", claimed, now=None, lease=self._settings.lease)
        return {(row.id, row.token): row.extended for row in rows}

    async def until_due(self, connection: database.Connection) -> float:
        """Seconds until the earliest recipient that waits for its time is due; the poll interval when none waits."""
        [row] = await database.fetch(connection, "claim_next_due", where=self._where, now=None)
        return float(row.seconds) if row.seconds is not None else self._settings.poll.total_seconds()

    async def give_back(self, connection: database.Connection, claimed: Sequence[Claimed]) -> None:
        """Return recipients untried; the count of tries goes back too."""
        await self._fenced(connection, "claim_release_if_ours", claimed)
        events.emit("claim.released", recipients=len(claimed))

    async def _fenced(
        self, connection: database.Connection, query: str, claimed: Sequence[Claimed], **values: Any
    ) -> list[database.Row]:
        """Run a statement about these where they were claimed, and about those it misses in the whole queue."""
        rows: list[database.Row] = []
        for some in self._leaves.portions(claimed):
            part = {"among": among(self._leaves.named(some))}
            rows += await database.fetch_filled(connection, query, part, keep=True, **fence(some), **values)
        found = {(row.id, row.token) for row in rows}
        if missed := [c for c in claimed if (c.id, c.token) not in found]:
            rows += await database.fetch_filled(connection, query, {"among": among(None)}, **fence(missed), **values)
        return rows


def _class(priority: int, *, tried: bool) -> str:
    """Which floor is this mail's."""
    if priority < 0:
        return "floor_bulk"
    return ("floor_urgent" if priority > 0 else "floor") + ("_retried" if tried else "")


def exhausted(taken: Mapping[str, int], limit: int, retried: int, ordinary: int = 0) -> set[str]:
    """The classes that a claim of `limit` rows came to the end of, by what it took of each: claim.sql's own order."""
    found = set()
    room = limit
    not_urgent = taken.get("floor", 0) + taken.get("floor_retried", 0)
    for fresh, tried in (("floor_urgent", "floor_urgent_retried"), ("floor", "floor_retried")):
        before = room
        room -= taken.get(fresh, 0) + taken.get(tried, 0)
        if fresh == "floor_urgent" and 0 < not_urgent <= ordinary and room <= not_urgent:
            continue  # the share of ordinary mail may have been taken from urgent mail that was there
        # What is kept for the second was taken of it.
        if taken.get(fresh, 0) < before - min(retried, taken.get(tried, 0)):
            found.add(fresh)
        if room > 0:
            found.add(tried)
    if taken.get("floor_bulk", 0) < room:
        found.add("floor_bulk")
    return found


async def _ask(
    connection: database.Connection, where: str, parts: Mapping[str, str], *, keep: bool, **values: Any
) -> list[database.Row]:
    """The claim, once more when a partition was not there yet or was there no longer.

    `keep`: its plan, from the first time on each connection, also those that the pool opens when mail comes suddenly.
    """
    try:
        return await database.fetch_where(connection, "claim", where, parts, keep=keep, **values)
    except database.NO_PARTITION:
        # A lost try is written into today's attempts, and the clock jumped past the days made in advance; maintenance
        # makes the others.
        await database.fetch(connection, "history_create", ahead=1)
    except database.VANISHED:
        pass  # the queue was repartitioned meanwhile
    return await database.fetch_where(connection, "claim", where, parts, keep=keep, **values)


def among_tokens(tokens: Collection[int]) -> str:
    """The condition that a row's token is one of these; like `_besides` mostly none."""
    return f"(token IS NOT NULL AND token = ANY ('{{{','.join(map(str, tokens))}}}'))" if tokens else "false"


def _besides(where: str, ids: Collection[int]) -> str:
    """The condition, for all but these recipients. There are some so rarely that no kept plan need know of them."""
    if not ids:
        return where
    return f"({where}) AND id <> ALL ('{{{','.join(map(str, ids))}}}')"
