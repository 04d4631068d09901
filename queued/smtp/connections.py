"""connections — keep SMTP connections open between transactions, and count them

Owns: every SmtpConnection from opening to closing, kept per host, port and session.
Called by: deliver, which borrows one at a time; the daemon, which closes the pool when it stops.
Guarantees: at most `concurrency` connections borrowed per host and port, and as many kept; a kept one is handed
out only for the session it was opened for, while it is usable and within its limits, the newest first; what is
not kept is closed in the background;
after `close` nothing is open any more.
Raises: ConversationError from `acquire` when opening fails; PoolClosedError after `close` began.
See: Postfix smtp_connection_cache_time_limit (idle), smtp_connection_reuse_count_limit (transactions),
smtp_connection_reuse_time_limit (age), default_destination_concurrency_limit (concurrency).
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from queued.smtp.client import SmtpConnection
from queued.tls.context import Contexts
from queued.tls.policy import CLEAR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from queued.routing.route import Hop
    from queued.smtp.transaction import Timeouts
    from queued.tls.policy import TlsWanted


class PoolClosedError(Exception):
    """A connection was asked for after the pool began to close."""


class SessionWanted(NamedTuple):
    """How a host is to be spoken to; connections are shared only by those for whom the first three are equal.

    hostname: our name in EHLO. source: the local address to leave from, None for the system's choice. tls: what is
    asked of the host. connect_gate: awaited before a new connection is opened, for intervals between connections;
    what it raises ends the attempt.
    """

    hostname: str
    source: str | None = None
    tls: TlsWanted = CLEAR
    connect_gate: Callable[[], Awaitable[None]] | None = None

    @property
    def key(self) -> tuple[str, str | None, TlsWanted]:
        """What tells sessions apart."""
        return self[:3]


@dataclass(frozen=True, slots=True)
class ReuseLimits:
    """When a connection is not kept any longer.

    transactions: how many one connection carries. idle, age: seconds unused, and since it was opened.
    """

    transactions: int = 100
    idle: float = 2.0
    age: float = 300.0


class ConnectionPool:
    """Connections of one transport: one set of limits, any number of hosts and of ways to speak to them."""

    def __init__(
        self,
        *,
        timeouts: Timeouts,
        concurrency: int = 20,
        limits: ReuseLimits | None = None,
        contexts: Contexts | None = None,
    ) -> None:
        """`concurrency` counts connections per host and port; `contexts` are OpenSSL's settings."""
        self._contexts = contexts or Contexts()
        self._timeouts = timeouts
        self._concurrency = concurrency
        self._limits = limits or ReuseLimits()
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._borrowed: set[SmtpConnection] = set()
        self._chores: set[asyncio.Task[None]] = set()
        self._openings: set[asyncio.Task[SmtpConnection]] = set()
        self._closing = False
        self._changed = asyncio.Event()

    @property
    def borrowed(self) -> int:
        """Connections in use now."""
        return len(self._borrowed)

    @property
    def idle(self) -> int:
        """Connections kept open and not in use."""
        return sum(len(lane.idle) for lane in self._lanes.values())

    @asynccontextmanager
    async def acquire(self, hop: Hop, session: SessionWanted) -> AsyncIterator[SmtpConnection]:
        """A connection to the host for the body of the `async with`, waiting for a free one.

        Its `transactions` is 0 when it was opened just now; a fault in phase mail on an older one may only
        mean that the host had grown tired of it.
        """
        place = hop.host, hop.port
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = _Lane(place, self._concurrency)
        lane.users += 1
        try:
            async with lane.slots:
                connection = await self._take(lane, session)
                self._borrowed.add(connection)
                try:
                    yield connection
                finally:
                    self._borrowed.discard(connection)
                    self._give_back(lane, session, connection)
        finally:
            lane.users -= 1
            self._forget_unused(lane)
            self._changed.set()

    async def close(self) -> None:
        """Close what is idle, wait for what is borrowed, close that too; idempotent.

        Cancelled, it cuts every connection that is left: the caller's patience is the limit.
        """
        self._closing = True
        # Whoever waits for a slot, or for a host to answer, has begun nothing: turned away, it can go back at once.
        for opening in self._openings:
            opening.cancel()
        for lane in self._lanes.values():
            for _ in range(lane.users):
                lane.slots.release()
            while lane.idle:
                self._discard(lane.idle.pop()[1])
        try:
            while self._chores or any(lane.users for lane in self._lanes.values()):
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            for chore in self._chores:
                chore.cancel()
            for connection in self._borrowed:
                connection.abort()
            raise
        finally:
            for lane in self._lanes.values():
                lane.stop_timer()
            self._lanes.clear()

    async def _take(self, lane: _Lane, session: SessionWanted) -> SmtpConnection:
        if self._closing:
            raise PoolClosedError
        while (connection := lane.newest(session.key)) is not None:
            if self._may_stay(connection):
                return connection
            self._discard(connection)
        if session.connect_gate is not None:
            await session.connect_gate()
            if self._closing:
                raise PoolClosedError
        return await self._open(lane, session)

    async def _open(self, lane: _Lane, session: SessionWanted) -> SmtpConnection:
        """A new connection; PoolClosedError when the pool begins to close before it stands."""
        hostname, source, tls = session.key
        opening = asyncio.ensure_future(
            SmtpConnection.open(
                *lane.key, hostname=hostname, timeouts=self._timeouts, source=source, tls=tls, contexts=self._contexts
            )
        )
        self._openings.add(opening)
        try:
            return await opening
        except asyncio.CancelledError:
            if opening.done() and not opening.cancelled() and not opening.exception():
                opening.result().abort()  # it stood in the moment nobody wanted it any more
            current = asyncio.current_task()
            if self._closing and opening.cancelled() and current is not None and not current.cancelling():
                raise PoolClosedError from None
            raise
        finally:
            self._openings.discard(opening)

    def _give_back(self, lane: _Lane, session: SessionWanted, connection: SmtpConnection) -> None:
        if self._closing or not self._may_stay(connection):
            self._discard(connection)
            return
        lane.idle.append((session.key, connection))
        if len(lane.idle) > self._concurrency:  # of several sessions: the host shall not hold them all
            self._discard(lane.idle.popleft()[1])
        if lane.timer is None:
            loop = asyncio.get_running_loop()
            lane.timer = loop.call_later(self._limits.idle, self._sweep, lane)

    def _may_stay(self, connection: SmtpConnection) -> bool:
        now, limits = asyncio.get_running_loop().time(), self._limits
        return (
            connection.usable
            and connection.transactions < limits.transactions
            and now - connection.last_used < limits.idle
            and now - connection.opened_at < limits.age
        )

    def _sweep(self, lane: _Lane) -> None:
        """Close what has been idle too long; look again when the next one will have been."""
        lane.timer = None
        looked_at, lane.idle = lane.idle, deque()
        for kept in looked_at:
            if self._may_stay(kept[1]):
                lane.idle.append(kept)
            else:
                self._discard(kept[1])
        if lane.idle:
            loop = asyncio.get_running_loop()
            soonest = min(connection.last_used for _, connection in lane.idle) + self._limits.idle
            lane.timer = loop.call_at(soonest, self._sweep, lane)
        self._forget_unused(lane)

    def _forget_unused(self, lane: _Lane) -> None:
        """A host we have nothing to do with any more costs nothing."""
        if not lane.users and not lane.idle and self._lanes.get(lane.key) is lane:
            lane.stop_timer()
            del self._lanes[lane.key]

    def _discard(self, connection: SmtpConnection) -> None:
        """Close in the background: nobody need wait for a QUIT."""
        if connection.usable:
            self._start(connection.close())
        else:
            connection.abort()

    def _start(self, chore: Coroutine[object, object, None]) -> None:
        running = asyncio.ensure_future(chore)
        self._chores.add(running)
        running.add_done_callback(self._finished)

    def _finished(self, chore: asyncio.Task[None]) -> None:
        self._chores.discard(chore)
        self._changed.set()


class _Lane:
    """What the pool holds for one host and port."""

    def __init__(self, key: tuple[str, int], concurrency: int) -> None:
        self.key = key
        self.slots = asyncio.Semaphore(concurrency)
        self.idle: deque[tuple[object, SmtpConnection]] = deque()  # each with the key of its session, newest last
        self.users = 0  # holders of a slot and those who wait for one
        self.timer: asyncio.TimerHandle | None = None

    def newest(self, key: object) -> SmtpConnection | None:
        """The idle connection of this session that was used last, which is idle no more; None when there is none."""
        for index in range(len(self.idle) - 1, -1, -1):
            if self.idle[index][0] == key:
                connection = self.idle[index][1]
                del self.idle[index]
                return connection
        return None

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
