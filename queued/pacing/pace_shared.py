"""pace_shared — limits that all workers share, through PostgreSQL

Owns: the portions of tokens and the slots that this worker holds, and the rounds that fetch, keep and return them.
Guarantees: asking never awaits. Together the workers never have more slots than the limit, while each reaches
    PostgreSQL once in `LEASE`; the slots of a worker that died, was stopped, or is cut off from PostgreSQL lapse after
    it, and that worker uses none of them again without a new grant. In any span of T seconds they begin
    at most `burst + rate * (T + PORTION)` messages: a portion is used within PORTION seconds or goes back. Without
    PostgreSQL nothing is granted, so mail under a shared limit waits.
See: sql/schema/12_pacing.sql, pace_share; sql/README.md, "Pacing".
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from datetime import timedelta
from itertools import batched
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.pacing.gauge import LATEST
from queued.waiting.deferral import Deferral
from shared.observe import events
from shared.postgres import database
from shared.timed_wait import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared.config.queued.pacing import Policy

#: Seconds after which the slots of a worker that no longer says so are free.
LEASE: Final = 30.0
#: Seconds before that from which on nothing begins with them any more, so that all is closed when they are free.
MARGIN: Final = LEASE / 6
#: Seconds within which a portion of tokens is used, and the most that one portion is for.
PORTION: Final = 1.0
_IDLE: Final = 0.5  # seconds an unused slot is kept in case it is wanted again
_HASTE, _CALM = 0.05, 0.25  # seconds between rounds while something is wanted, and while something is held
_SLOWEST: Final = 2.0  # seconds between two looks for a slot; a waiting worker keeps its place in the queue for five
_FIRST_GUESS, _WEIGHT = 1.0, 0.2  # of how long a slot is used: before anything is known, and of the latest in the mean
_LONGEST: Final = 500  # characters of a key
_AT_ONCE: Final = 200  # limits of one statement
_FORGET: Final = 600.0  # seconds between two sweeps of unused limits


class Share(NamedTuple):
    """The request of a round for one limit."""

    give: int
    want: int
    keep: int
    more: int


class SharedGauge:
    """One shared limit, as far as it is in this worker's hands. See queued.pacing.gauge, Gauge."""

    def __init__(self, shares: Shares, policy: Policy, key: tuple[str, ...]) -> None:
        self.policy = policy
        self.key = _bounded(json.dumps([policy.id, *key]))
        self._shares = shares
        self._tokens, self._tokens_until = 0, 0.0
        self._used = self._spare = 0
        self._slots_until = self._spare_since = 0.0
        self._held_since = 0.0  # from when on the lease has not lapsed
        self._wants = 0
        self._pause_until = 0.0  # PostgreSQL said there is nothing before
        self._mean = _FIRST_GUESS
        self._refused = False  # there were no slots when we asked last
        self._starved = False
        self._held = False  # whether the table has slots for us

    def look(self, now: float) -> Deferral | None:
        """None when one more may begin; else the round that follows asks for more."""
        policy = self.policy
        if policy.rate is not None and not (self._tokens and now < self._tokens_until):
            wait = max(self._pause_until - now, _HASTE)
            return self._wanted(
                Deferral(wait, f"policy {policy.id}: {policy.rate}, shared", 1 / policy.rate.per_second)
            )
        if policy.concurrency is not None and not (self._spare and now < self._slots_until - MARGIN):
            every = min(max(self._mean / policy.concurrency, _HASTE), _SLOWEST) if self._refused else _HASTE
            return self._wanted(Deferral(every, f"policy {policy.id}: {policy.concurrency} at once, shared", every))
        return None

    def take(self, now: float) -> None:  # noqa: ARG002 - the interface
        """One begins."""
        self._used += 1
        if self.policy.rate is not None:
            self._tokens -= 1
        if self.policy.concurrency is not None:
            self._spare -= 1

    def back(self, now: float, started: float, *, unused: bool) -> None:
        """One has ended; its slot goes to a worker that waits for its first, or is dropped if the limit was lowered."""
        self._used -= 1
        if not unused:
            self._mean += _WEIGHT * (now - started - self._mean)
        elif self.policy.rate is not None:
            self._tokens += 1
        if self.policy.concurrency is not None:
            if self._starved or self._used + self._spare >= self.policy.concurrency:
                self._shares.hurry()
            else:
                self._spare += 1
                self._spare_since = now
        self._shares.touch(self)

    def lapsed(self, now: float, started: float) -> bool:
        """Whether the slot that was taken then may be another worker's by now, or will be in a moment."""
        return started < self._held_since or now >= self._slots_until - MARGIN

    def idle(self, now: float) -> bool:
        """Whether forgetting this would change nothing."""
        return not (self._used or self._spare or self._held or self._wants) and now >= self._tokens_until

    @property
    def starved(self) -> bool:
        """Whether another worker waits for a slot, when PostgreSQL was asked last."""
        return self._starved

    @property
    def hungry(self) -> bool:
        """Whether it waits for more."""
        return self._wants > 0

    def plan(self, now: float) -> Share | None:
        """The next request to PostgreSQL; this worker stops using the slots that it gives back here."""
        give = 0
        if self._tokens and now >= self._tokens_until:
            give, self._tokens = self._tokens, 0
        dropped = 0
        if self._spare and (now >= self._slots_until - MARGIN or (now - self._spare_since > _IDLE and not self._wants)):
            dropped, self._spare = self._spare, 0
        keep = self._used + self._spare
        if now < self._pause_until:
            self._wants = 0  # the delivery that wanted it comes again at its announced time
        asking = self._wants > 0
        extend = keep > 0 and self._slots_until - now < LEASE / 2
        leave = self._held and keep == 0
        if self.policy.concurrency is None:
            extend = leave = False
        if not (give or dropped or asking or extend or leave or (self._starved and self._held)):
            return None
        wants, self._wants = self._wants, 0
        rate, most = self.policy.rate, self.policy.concurrency
        want = max(0, min(wants, max(1, math.ceil(rate.per_second * PORTION))) - self._tokens) if rate else 0
        more = 0
        if most is not None and not (self._starved and keep):
            more = max(0, min(wants, most - keep))
        return Share(give, want, keep, more)

    def fill(self, row: database.Row, plan: Share, started: float, now: float) -> None:
        """Take PostgreSQL's grant; `started` when it was asked, from which all times count."""
        if now >= self._slots_until:
            self._held_since, self._spare = now, 0
        if row.tokens:
            self._tokens_until = min(self._tokens_until, started + PORTION) if self._tokens else started + PORTION
            self._tokens += row.tokens
        if row.slots:
            self._spare += row.slots
            self._spare_since = started
        if self.policy.concurrency is not None:
            self._slots_until = started + LEASE
            self._held = plan.keep + row.slots > 0
        self._starved = row.starved
        if plan.more:
            self._refused = not row.slots
        if plan.want and not row.tokens:
            self._pause_until = started + min(row.seconds, LATEST)
        elif plan.more and not row.slots:
            self._pause_until = started + _HASTE

    def done(self) -> bool:
        """Whether no round need look at it until it is asked again."""
        return not (self._used or self._spare or self._held or self._wants or self._tokens)

    def _wanted(self, held: Deferral) -> Deferral:
        self._wants += 1
        self._shares.touch(self)
        self._shares.hurry()
        return held


class Shares:
    """All shared limits that this worker has to do with."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._worker = ""
        self._clock = clock
        self._active: dict[str, SharedGauge] = {}
        self._hurried = asyncio.Event()
        self._forgotten = clock()
        self._left = False

    def gauge(self, policy: Policy, key: tuple[str, ...], now: float) -> SharedGauge:  # noqa: ARG002 - as LocalGauge
        """The part of this limit that is ours: nothing yet."""
        return SharedGauge(self, policy, key)

    def touch(self, gauge: SharedGauge) -> None:
        """The next rounds look at this one."""
        self._active[gauge.key] = gauge

    def hurry(self) -> None:
        """The next round comes soon."""
        self._hurried.set()

    async def run(self, pool: database.Pool, worker: str) -> None:
        """Round after round while there is anything to fetch, keep or return; until cancelled.

        `worker`: unique among all that run, as in the register.
        """
        self._worker = worker
        while True:
            if not self._active:
                await self._hurried.wait()
            self._hurried.clear()
            try:
                await self.round(pool)
            except (*database.OUTAGE, *database.REFUSAL) as error:
                events.emit("pace.unshared", error=database.reason(error), away=database.is_away(error))
                await asyncio.sleep(_CALM)
            await asyncio.sleep(_HASTE)  # requests that come meanwhile go into one round
            hungry = any(each.hungry for each in self._active.values())
            await wait_for_event(self._hurried, _HASTE if hungry else _CALM)

    async def round(self, pool: database.Pool) -> None:
        """Ask for the portions that are wanted, return the others, extend leases."""
        now = self._clock()
        for gauges in batched(() if self._left else list(self._active.values()), _AT_ONCE):
            # Not planned earlier: what a gauge gives back by its plan, it no longer has.
            plans = [(gauge, plan) for gauge in gauges if (plan := gauge.plan(self._clock())) is not None]
            if plans:
                async with pool.connection() as connection:
                    await self._share(connection, plans)
        for key in [key for key, gauge in self._active.items() if gauge.done()]:
            del self._active[key]
        if now - self._forgotten > _FORGET:
            self._forgotten = now
            async with pool.connection() as connection:
                await database.fetch(connection, "pace_forget")

    async def leave(self, pool: database.Pool) -> None:
        """Return everything, even if still used, and ask for no more; if PostgreSQL is away, it lapses."""
        self._left = True
        if not self._active:
            return
        try:
            async with pool.connection() as connection:
                for gauges in batched(list(self._active.values()), _AT_ONCE):  # one may end meanwhile
                    await self._share(connection, [(gauge, Share(0, 0, 0, 0)) for gauge in gauges])
        except (*database.OUTAGE, *database.REFUSAL) as error:
            events.emit("pace.unshared", error=database.reason(error), away=database.is_away(error))

    async def _share(self, connection: database.Connection, plans: Sequence[tuple[SharedGauge, Share]]) -> None:
        """Carry these plans out by one statement, which locks limits in the order of their keys, as all workers do."""
        started = self._clock()
        plans = sorted(plans, key=lambda planned: planned[0].key)
        policies = [gauge.policy for gauge, _ in plans]
        rows = await database.fetch(
            connection,
            "pace_share",
            worker=self._worker,
            lease=timedelta(seconds=LEASE),
            keys=[gauge.key for gauge, _ in plans],
            rates=[policy.rate.per_second if policy.rate else None for policy in policies],
            bursts=[policy.most for policy in policies],
            concurrencies=[policy.concurrency for policy in policies],
            give=[plan.give for _, plan in plans],
            want=[plan.want for _, plan in plans],
            keep=[plan.keep for _, plan in plans],
            more=[plan.more for _, plan in plans],
        )
        for (gauge, plan), row in zip(plans, rows, strict=True):
            gauge.fill(row, plan, started, self._clock())


def _bounded(key: str) -> str:
    """A key that PostgreSQL can have in an index, whatever an application calls its tenants."""
    if len(key) <= _LONGEST:
        return key
    return f"{key[:_LONGEST]}… sha256:{hashlib.sha256(key.encode()).hexdigest()}"
