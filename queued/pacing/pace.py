"""pace — whether mail may leave now: policies, suspends and delivery windows

Owns: the decision, and the turns that are granted.
Guarantees: asking never awaits. All limits that apply must allow a message, or nothing is taken from any. Memory grows
    with the mail that is limited now, not with all that ever was.
Raises: nothing.
See: docs/explanation/pacing.md; Halon's queue policies.

A turn is held from before a message is begun until its end, however it ends: `turn.done()`, or `done(unused=True)` when
it did not come to a try. Mail that must wait asks again after `seconds`; of several that wait for the same reason
the n-th may come `n * every` seconds later.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.pacing import windows
from queued.pacing.gauge import Gauge, LocalGauge
from queued.pacing.match import LATE, Fields, Selection
from queued.pacing.pace_host import HostSlots
from queued.pacing.pace_shared import Shares
from queued.pacing.suspends import Suspends
from queued.waiting.deferral import Deferral
from shared.config.queued.pacing import Pacing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from queued.pacing.pace_host import HostLimit, Slot
    from shared.config.queued.pacing import Policy, Window
    from shared.postgres import database

__all__ = ["Fields", "Paces", "Turn"]

_SWEEP: Final = 4096  # gauges at which those that are idle are first looked for
_WINDOW_LONGEST: Final = 3600.0  # seconds: windows may be changed meanwhile, so this is the longest wait at a time


class Turn:
    """Leave to begin one message."""

    __slots__ = ("_gauges", "_paces", "_started")

    def __init__(self, paces: Paces, gauges: Sequence[Gauge], started: float) -> None:
        self._paces = paces
        self._gauges = gauges
        self._started = started

    def done(self, *, unused: bool = False) -> None:
        """Give it back, once; `unused` when no server was asked, so that the rate has not been used. Idempotent."""
        gauges, self._gauges = self._gauges, ()
        for gauge in gauges:
            gauge.back(self._paces.clock(), self._started, unused=unused)


class _Prepared(NamedTuple):
    policy: Policy
    selection: Selection
    key: tuple[str, ...]  # the fields it counts by


class Paces:
    """All that limits how fast this worker's mail leaves."""

    def __init__(
        self,
        pacing: Pacing | None = None,
        times: Mapping[str, Sequence[Window]] | None = None,
        *,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`times`: the delivery windows of each transport."""
        self.clock = clock
        self._now = now
        self._policies: dict[str, Policy] = {}
        self._gauges: dict[tuple[str, tuple[str, ...]], Gauge] = {}
        self._sweep_at = _SWEEP
        self.suspends = Suspends(clock=clock)
        self.shares = Shares(clock=clock)
        self._hosts = HostSlots(self.shares, clock)
        self._free = Turn(self, (), 0.0)
        self.use(pacing or Pacing(), times or {})

    def use(self, pacing: Pacing, times: Mapping[str, Sequence[Window]]) -> None:
        """Go by these from now on. Policies that count the same things go on counting from where they are."""
        self._times = {transport: tuple(given) for transport, given in times.items() if given}
        prepared = [_Prepared(p, Selection(p.match.model_dump()), tuple(p.fields)) for p in pacing.policies]
        counting = [p for p in prepared if p.policy.concurrency is not None or p.policy.rate is not None]
        self._early = [p for p in counting if not _is_late(p)]
        self._late = [p for p in counting if _is_late(p)]
        self._connecting = [p for p in prepared if p.policy.connectinterval]
        gauges, self._gauges = self._gauges, {}
        policies = {policy.id: policy for policy in pacing.policies}
        for (name, key), gauge in gauges.items():
            was, now = self._policies[name], policies.get(name)
            if now is not None and (now.fields, now.shared) == (was.fields, was.shared):
                gauge.policy = now
                self._gauges[name, key] = gauge
        self._policies = policies
        self.suspends.use(pacing.suspends)

    @property
    def by_destination(self) -> bool:
        """Whether any limit asks for the recipients' domain, so that only recipients of one domain can share a turn."""
        return self.suspends.by_destination or any(
            "destination" in p.policy.fields or p.policy.match.destination for p in (*self._early, *self._late)
        )

    @property
    def by_connection(self) -> bool:
        """Whether any policy asks for an interval between new connections."""
        return bool(self._connecting)

    def ask(self, fields: Fields) -> Turn | Deferral:
        """Whether a message may begin now, as far as can be decided before its hosts are known."""
        if times := self._times.get(fields.transport):
            now = self._now()
            opens = windows.next_open(times, now)
            if opens is None or opens > now:
                seconds = _WINDOW_LONGEST if opens is None else min((opens - now).total_seconds(), _WINDOW_LONGEST)
                until = "" if opens is None else f" until {opens:%Y-%m-%d %H:%M} UTC"
                return Deferral(seconds, f"transport {fields.transport} delivers nothing{until}")
        return self._ask(fields, self._early, late=False)

    def ask_host(self, fields: Fields) -> Turn | Deferral:
        """The limits that remain once site and source are known. The turn that `ask` gave is held besides."""
        return self._ask(fields, self._late, late=True)

    def ask_connect(self, fields: Fields) -> Deferral | None:
        """None when a new connection may be opened now; it then counts as opened."""
        fields = fields.folded()
        now = self.clock()
        opened: list[LocalGauge] = []
        waits: list[Deferral] = []
        for prepared in self._connecting:
            if (key := _key(prepared, fields)) is not None:
                gauge = self._gauge(prepared, key, now)
                if isinstance(gauge, LocalGauge):
                    opened.append(gauge)
                    if (held := gauge.until_connect(now)) is not None:
                        waits.append(held._replace(of=(prepared.policy.id, *key)))
        if waits:
            return max(waits)
        for gauge in opened:
            gauge.connected(now)
        return None

    def ask_host_slot(self, limit: HostLimit) -> Slot | Deferral:
        """A slot for a connection to a host whose limit all workers share, held until the connection is closed."""
        return self._hosts.ask(limit)

    def suspend(self, selection: Mapping[str, Sequence[str]], seconds: float, reason: str, who: str = "rule") -> None:
        """Let this mail wait from now on, in this worker at once and in the others once they are notified.

        `selection`: values by field, such as {"destination": ["example.com"]}. What repeats one puts its end off.
        """
        self.suspends.add(selection, seconds, reason, who)

    async def begin(self, pool: database.Pool, where: str = "true") -> None:
        """Learn what is suspended before the first message is begun. Raises what psycopg raises."""
        async with pool.connection() as connection:
            await self.suspends.follow(connection, where)

    async def run(self, pool: database.Pool, worker: str, where: str = "true", poll: float = 5.0) -> None:
        """Keep suspends as the table has them, and shared limits in supply, until cancelled.

        `worker`: as whom limits are shared, unique at any time. `where` selects its rows; `poll` in seconds.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.suspends.run(pool, where, poll))
            tasks.create_task(self.shares.run(pool, worker))

    async def leave(self, pool: database.Pool) -> None:
        """Give back what is held of shared limits, so that others need not wait until it lapses."""
        await self.shares.leave(pool)

    def _ask(self, fields: Fields, policies: Sequence[_Prepared], *, late: bool) -> Turn | Deferral:
        if not policies and not self.suspends:
            return self._free
        fields = fields.folded()
        if (suspended := self.suspends.look(fields, late=late)) is not None:
            return suspended._replace(stopped="us")
        now = self.clock()
        gauges: list[Gauge] = []
        worst: Deferral | None = None
        for prepared in policies:
            if (key := _key(prepared, fields)) is None:
                continue
            gauge = self._gauge(prepared, key, now)
            held = gauge.look(now)
            if held is not None and (worst is None or held[:3] > worst[:3]):
                worst = held._replace(of=(prepared.policy.id, *key))
            gauges.append(gauge)
        if worst is not None:
            return worst
        for gauge in gauges:
            gauge.take(now)
        return Turn(self, gauges, now) if gauges else self._free

    def _gauge(self, prepared: _Prepared, key: tuple[str, ...], now: float) -> Gauge:
        policy = prepared.policy
        gauge = self._gauges.get((policy.id, key))
        if gauge is None:
            if len(self._gauges) >= self._sweep_at:
                self._gauges = {each: known for each, known in self._gauges.items() if not known.idle(now)}
                self._sweep_at = max(_SWEEP, 2 * len(self._gauges))
            gauge = self.shares.gauge(policy, key, now) if policy.shared else LocalGauge(policy, now)
            self._gauges[policy.id, key] = gauge
        return gauge


def _is_late(prepared: _Prepared) -> bool:
    return prepared.selection.late or not LATE.isdisjoint(prepared.key)


def _key(prepared: _Prepared, fields: Fields) -> tuple[str, ...] | None:
    """The key that this mail is counted by; None when the policy does not apply to it."""
    if not prepared.selection.fits(fields):
        return None
    values = [getattr(fields, name) for name in prepared.key]
    return None if None in values else tuple(values)
