"""pace_host — the limit on connections of all workers together to one host

Owns: the count behind `concurrencyper: host` of a transport, and the granted slots: one for each open connection, in
    use or kept for the next message.
Guarantees: asking never awaits. All workers together never have more connections to a host than `concurrency`: a slot
    is taken before a connection is opened and goes back when it is closed. The slots of a worker that was killed lapse
    after 30 s, and those of one that was stopped or is cut off from PostgreSQL: it closes its connections by then,
    but for those with a message under way, and begins nothing on a connection whose slot has lapsed. A transport that
    counts by worker costs nothing here and no query.
See: queued/pacing/pace_shared.py, which shares the slots; docs/explanation/pacing.md, "One limit for a host".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from queued.pacing.pace_shared import SharedGauge
from shared.config.queued.pacing import Policy
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Callable

    from queued.pacing.pace_shared import Shares
    from queued.waiting.deferral import Deferral

_SWEEP: Final = 4096  # number of hosts from which on those without connections are forgotten


class HostLimit(NamedTuple):
    """Which connections are counted together, and how many there may be."""

    transport: str
    host: str  # name and port
    most: int


class Slot:
    """Leave to have one connection, until `done`."""

    __slots__ = ("_done", "_gauge", "_hosts", "_started")

    def __init__(self, hosts: HostSlots, gauge: SharedGauge, started: float) -> None:
        self._hosts = hosts
        self._gauge = gauge
        self._started = started
        self._done = False

    @property
    def wanted(self) -> bool:
        """Whether another worker waits for it: its connection is not to be kept."""
        return self._gauge.starved

    @property
    def lapsed(self) -> bool:
        """Whether it may be another worker's by now: its connection is to be closed, and not to be used again."""
        return self._hosts.lapsed(self._gauge, self._started)

    def done(self) -> None:
        """The connection is closed. Idempotent."""
        if not self._done:
            self._done = True
            self._hosts.back(self._gauge, self._started)


class HostSlots:
    """Every host that this worker shares a limit for."""

    def __init__(self, shares: Shares, clock: Callable[[], float]) -> None:
        self._shares = shares
        self._clock = clock
        self._gauges: dict[tuple[str, str], SharedGauge] = {}
        self._sweep_at = _SWEEP

    def ask(self, limit: HostLimit) -> Slot | Deferral:
        """A slot for one more connection to a host."""
        now, gauge = self._clock(), self._gauge(limit)
        held = gauge.look(now)
        if held is not None:
            most = how_many(limit.most, "connection")
            reason = f"transport {limit.transport}: {most} to {limit.host}, of all workers"
            return held._replace(reason=reason, of=(limit.transport, limit.host))
        gauge.take(now)
        return Slot(self, gauge, now)

    def lapsed(self, gauge: SharedGauge, started: float) -> bool:
        """Whether a slot that was taken then is ours no more."""
        return gauge.lapsed(self._clock(), started)

    def back(self, gauge: SharedGauge, started: float) -> None:
        """A connection was closed."""
        gauge.back(self._clock(), started, unused=False)

    def _gauge(self, limit: HostLimit) -> SharedGauge:
        known = self._gauges.get((limit.transport, limit.host))
        if known is None:
            if len(self._gauges) >= self._sweep_at:
                now = self._clock()
                self._gauges = {key: gauge for key, gauge in self._gauges.items() if not gauge.idle(now)}
                self._sweep_at = max(_SWEEP, 2 * len(self._gauges))
            known = SharedGauge(self._shares, _policy(limit), (limit.host,))
            self._gauges[limit.transport, limit.host] = known
        elif known.policy.concurrency != limit.most:  # queued.yaml was read again
            known.policy = _policy(limit)
        return known


def _policy(limit: HostLimit) -> Policy:
    """The limit as pace_shared counts it. No policy of queued.yaml has a colon in its id."""
    return Policy.model_construct(
        id=f"host:{limit.transport}", concurrency=limit.most, rate=None, burst=None, shared=True
    )
