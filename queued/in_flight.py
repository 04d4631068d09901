"""in_flight — everything a worker has claimed and not yet recorded, parked or given back

Owns: what is in flight with the end of each lease, the heartbeat that puts it off, and the two ways back to the queue:
    given back as if never claimed, and parked until a time; the two events that a claim waits for, room and mail.
Guarantees: what waits for a body, a turn, or its result to be recorded keeps its lease as much as what is being sent.
    Parking goes in groups and is tried again through an outage; a recipient stays in flight until it is parked: no
    other worker has it meanwhile. Neither way back counts as a try. What returns to the queue is claimed when it is
    due, although the worker was waiting for mail already.
See: sql/queries/delivery/claim.sql, claim_park_if_ours; sql/README.md, "Claims".
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.admission.unproven import Unproven
from queued.claiming.leaves import Leaves, among
from queued.outcome.own_login import noted
from queued.values import fence
from queued.waiting.deferral import LATEST, SOONEST, Deferral
from shared.how_many import how_many
from shared.observe import events
from shared.postgres import database
from shared.postgres.array_text import numbers, texts

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from uuid import UUID

    from queued.claiming.claim import Claimer
    from queued.values import Claimed, Fence, Lease
    from shared.config.queued.settings import Claim as ClaimSettings

_PATIENCE: Final = 3.0  # seconds without a result recorded, though some wait: more than one lock timeout
_BLOCKED: Final = 10.0  # seconds until such a message is looked at again
_LATELY: Final = 0.1  # the weight of the last gap between two results in their mean
_LONGEST_GAP: Final = 1.0  # seconds: a message that was stopped is not slow for that


class _Message:
    __slots__ = ("begun", "gap", "last", "parked", "ready")

    def __init__(self, now: float) -> None:
        self.begun = 0  # recipients
        self.ready = 0  # of those: their results wait to be recorded
        self.last = now  # when it last got on: the first result that waits, or one recorded
        self.gap = 0.01  # mean seconds between two results recorded
        self.parked = now  # when the last one parked is expected to be begun


class StalledAttempts:
    """Attempts that stand still while their host has content of ours: they do not count against the worker's limit.

    At most a quarter of `claim.inflight` and of `claim.maxbytes`, or one attempt that is larger than that. Such an
    attempt cannot be cut off without the danger of a duplicate (RFC 1047: whether the final dot was out), so it stays
    in flight: its lease is put off and its result recorded. See docs/explanation/admission.md.
    """

    def __init__(self, inflight: int, maxbytes: int) -> None:
        """inflight: recipients. maxbytes: octets of their bodies."""
        self._most, self._most_octets = -(-inflight // 4), maxbytes // 4
        self.recipients = self._octets = 0

    def take(self, recipients: int, octets: int) -> bool:
        """Add a stalled attempt; False if that would exceed the limit."""
        if self.recipients and (self.recipients + recipients > self._most or self._octets + octets > self._most_octets):
            return False
        self.recipients += recipients
        self._octets += octets
        return True

    def leave(self, recipients: int, octets: int) -> None:
        """The attempt has ended."""
        self.recipients -= recipients
        self._octets -= octets


class MessagesInFlight:
    """The messages in flight."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._messages: dict[UUID, _Message] = {}

    def begin(self, message: UUID, recipients: int, now: float) -> Deferral | None:
        """Count these as begun, or say for how long they are to be parked."""
        known = self._messages.get(message)
        if known is None:
            known = self._messages[message] = _Message(now)
        elif known.ready and now - known.last > _PATIENCE:
            return Deferral(_BLOCKED, "results of this message cannot be recorded")
        elif known.begun and known.begun + recipients > self._most:
            known.parked = min(max(known.parked, now) + recipients * known.gap, now + LATEST)
            return Deferral(
                max(known.parked - now, SOONEST), f"{how_many(known.begun, 'other recipient')} of this message"
            )
        known.begun += recipients
        return None

    def finish(self, message: UUID, recipients: int, now: float) -> None:
        """The results of these are there, to be recorded."""
        known = self._messages.get(message)
        if known is not None:
            if not known.ready:
                known.last = now
            known.ready += recipients

    def leave(self, message: UUID, now: float, *, recorded: bool) -> None:
        """One that was begun is no longer in flight, `recorded` when by its result."""
        known = self._messages.get(message)
        if known is None:
            return
        known.begun -= 1
        if recorded:
            known.ready -= 1
            known.gap += _LATELY * (min(now - known.last, _LONGEST_GAP) - known.gap)
            known.last = now
        if known.begun <= 0:
            del self._messages[message]


_GROUP: Final = 500
_FEW: Final = 100  # recipients to be parked, which are worth no COMMIT of their own
_COMPANY: Final = 0.1  # seconds that they wait for others, within the time they are parked for
_GIVE_BACK: Final = 5  # tries, because an operator may move one of the rows meanwhile
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class _Parked(NamedTuple):
    claimed: Claimed
    seconds: float
    reason: str
    since: float


class InFlight:
    """What a worker has in flight."""

    def __init__(self, pool: database.Pool, claimer: Claimer, settings: ClaimSettings) -> None:
        self._pool = pool
        self._claimer = claimer
        self._settings = settings
        self._expires: dict[Fence, tuple[Claimed, float]] = {}
        self._begun: set[Fence] = set()
        self._leases: dict[Lease, Sequence[Claimed]] = {}
        self._leaves = Leaves()
        self._parking: deque[_Parked] = deque()
        self._being_parked = 0
        self._to_park = asyncio.Event()
        self._all_parked = asyncio.Event()
        self._all_parked.set()
        self.messages = MessagesInFlight(max(1, settings.inflight // 2))
        #: Those for destinations that have not been reached of late.
        self.unproven = Unproven(settings.inflight, settings.maxbytes)
        #: Those stalled after content, which are not counted.
        self.aside = StalledAttempts(settings.inflight, settings.maxbytes)
        self.room = asyncio.Event()  # something has left
        self.due = asyncio.Event()  # there may be mail to claim
        self._passed_over = False  # the last claim left out what is in flight and late
        self.stopping = False

    def __len__(self) -> int:
        return len(self._expires)

    @property
    def counted(self) -> int:
        """Recipients in flight that count against `claim.inflight`."""
        return len(self._expires) - self.aside.recipients

    @property
    def leaving(self) -> int:
        """Those of them that are to be parked."""
        return len(self._parking) + self._being_parked

    @property
    def moving(self) -> int:
        """Recipients whose results may come within moments; not those for hosts that have not answered lately."""
        return len(self._expires) - self.leaving - self.unproven.recipients

    def take(self, claimed: Sequence[Claimed]) -> None:
        """These were claimed."""
        self._expires.update((key(c), (c, c.expires)) for c in claimed)

    def begin(self, delivery: Sequence[Claimed]) -> Deferral | None:
        """The delivery is on its way, or must wait for others of its message."""
        refused = self.messages.begin(delivery[0].message_id, len(delivery), monotonic())
        if refused is None:
            self._begun.update(map(key, delivery))
        return refused

    def recorded(self, claimed: Sequence[Claimed]) -> None:
        """The results of these are recorded."""
        self.leave(claimed, recorded=True)

    def leave(self, claimed: Sequence[Claimed], *, recorded: bool = False) -> None:
        """These are no longer in flight: recorded, parked, given back, or lost."""
        now = monotonic()
        for c in claimed:
            mine = c.id, c.token
            if self._expires.pop(mine, None) and mine in self._begun:
                self._begun.remove(mine)
                self.messages.leave(c.message_id, now, recorded=recorded)
        self.room.set()
        if self._passed_over:
            self._passed_over = False
            self.start_over()
        if self._claimer.done(claimed):
            self.due.set()

    def start_over(self) -> None:
        """Claim from everything that is due, now."""
        self._claimer.start_over()
        self.due.set()

    def due_again(self, seconds: float) -> None:
        """Mail that was in flight falls due in so many seconds: have it claimed then.

        The dispatcher may have looked when the next mail is due before this was in the queue, and waits for longer.
        """
        if seconds < self._settings.poll.total_seconds():  # or it looks once more before that
            asyncio.get_running_loop().call_later(max(seconds, 0.0), self.due.set)

    def late(self, seconds: float) -> set[int]:
        """The ids whose lease ends within so many seconds: the next claim is to leave them out."""
        near = monotonic() + seconds
        late = {c.id for c, expires in self._expires.values() if expires < near}
        self._passed_over = self._passed_over or bool(late)
        return late

    def expires(self, delivery: Sequence[Claimed]) -> float:
        """When the first of these leases ends, in monotonic seconds."""
        ends = [held[1] for c in delivery if (held := self._expires.get((c.id, c.token))) is not None]
        return min(ends) if ends else monotonic()

    def hold(self, lease: Lease, delivery: Sequence[Claimed]) -> None:
        """Put this lease off with those of its recipients, until it is let go."""
        self._leases[lease] = delivery

    def let_go(self, lease: Lease) -> None:
        """Forget a lease that nothing depends on any more."""
        self._leases.pop(lease, None)

    async def heartbeat(self) -> None:
        """Put the end of leases off, until cancelled. A lease that is lost ends its attempt."""
        lease = self._settings.lease.total_seconds()
        while True:
            await asyncio.sleep(lease / 6)
            now = monotonic()
            old = [c for c, expires in self._expires.values() if expires - now < lease * 2 / 3]
            if not old:
                continue
            started = monotonic()
            try:
                async with asyncio.timeout(lease / 6), self._pool.connection() as connection:
                    ours = await self._claimer.extend(connection, old)
            except (*database.OUTAGE, *database.REFUSAL) as error:
                # The attempts go on until their lease ends; the next beat may come through.
                said = str(error) or f"no answer within {lease / 6:.1f} s"
                events.emit("claim.failed", error=said, seconds=lease / 6, away=database.is_away(error))
                continue
            for c in old:
                # Not where somebody has it locked: its lease ends when it ended.
                if key(c) in self._expires and ours.get(key(c), True):
                    self._expires[key(c)] = c, started + lease if key(c) in ours else started
            for held, delivery in self._leases.items():
                held.put_off(self.expires(delivery))

    async def give_back(self, claimed: Sequence[Claimed]) -> None:
        """As if they had not been claimed. If PostgreSQL is away, their lease gives them back."""
        if not claimed:
            return
        try:
            for _ in range(_GIVE_BACK):
                try:
                    async with self._pool.connection() as connection:
                        await self._claimer.give_back(connection, claimed)
                    break
                except database.CONFLICT:
                    continue  # somebody held one of the rows at that moment
        except (*database.OUTAGE, *database.REFUSAL) as error:
            events.emit("claim.failed", error=error, seconds=0.0, away=database.is_away(error))
        self.leave(claimed)

    def park(self, claimed: Sequence[Claimed], until: Deferral) -> None:
        """Have these given back soon, due again after the time that `until` says."""
        now = monotonic()
        self._parking.extend(
            _Parked(c, until.seconds, noted(until.reason) if c.login_refused else until.reason, now) for c in claimed
        )
        self._all_parked.clear()
        self._to_park.set()

    async def parked(self) -> None:
        """Return when all that was to be parked is."""
        await self._all_parked.wait()

    async def run(self) -> None:
        """Park groups until cancelled."""
        pause = _FIRST_PAUSE
        while True:
            await self._to_park.wait()
            if len(self._parking) < _FEW and not self.stopping:
                await asyncio.sleep(_COMPANY)
            group, began = self._group(), monotonic()
            done, left = group, list[_Parked]()
            self._being_parked = len(group)
            try:
                ours = await self._park(group)
                pause = _FIRST_PAUSE
                # Rows that others have locked stay for the next time; rows that are not ours any more leave.
                left = [p for p in group if key(p.claimed) not in ours and monotonic() - p.since < _LONGEST_PAUSE]
            except database.CONFLICT:
                left = group
            except (*database.OUTAGE, *database.REFUSAL) as error:
                events.emit("claim.failed", error=error, seconds=pause, away=database.is_away(error))
                if not self.stopping:
                    left = group
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
            if left:
                again = {key(p.claimed) for p in left}
                done = [p for p in group if key(p.claimed) not in again]
                self._parking.extend(left)
                await asyncio.sleep(_FIRST_PAUSE)
            if done:
                self.leave([p.claimed for p in done])
                self.due_again(min(p.seconds - (began - p.since) for p in done))
            self._being_parked = 0
            if not self._parking:
                self._to_park.clear()
                self._all_parked.set()

    def _group(self) -> list[_Parked]:
        """Those to be parked next, of few leaves; they wait no more."""
        group = [self._parking.popleft() for _ in range(min(_GROUP, len(self._parking)))]
        chosen = self._leaves.first(group, lambda p: p.claimed)
        if len(chosen) < len(group):
            taken = {key(p.claimed) for p in chosen}
            self._parking.extendleft(p for p in reversed(group) if key(p.claimed) not in taken)
        return chosen

    async def _park(self, group: Sequence[_Parked]) -> Collection[Fence]:
        async with self._pool.connection() as connection:
            ours = await self._park_among(connection, group, among(self._leaves.named(p.claimed for p in group)))
            if missed := [p for p in group if key(p.claimed) not in ours]:
                ours |= await self._park_among(connection, missed, among(None))
        events.emit("claim.parked", recipients=len(ours), reason=group[0].reason, seconds=group[0].seconds)
        return ours

    async def _park_among(self, connection: database.Connection, group: Sequence[_Parked], where: str) -> set[Fence]:
        now = monotonic()
        rows = await database.fetch_filled(
            connection,
            "claim_park_if_ours",
            {"among": where},
            keep=where != among(None),
            now=None,
            **fence([p.claimed for p in group]),
            seconds=numbers(max(0.0, p.seconds - (now - p.since)) for p in group),
            reasons=texts(p.reason for p in group),
        )
        return {(row.id, row.token) for row in rows}


def key(claimed: Claimed) -> Fence:
    """What tells two claims apart, of one recipient too."""
    return claimed.id, claimed.token
