"""pool — keeps SMTP connections open between transactions, and counts them

Owns: every SmtpConnection from opening to closing, kept per host, port and session.
Guarantees: at most `concurrency` connections borrowed per host and port, and as many kept; a kept one is handed
out only for the session it was opened for, while it is usable and within its limits, the newest first; what is
not kept is closed in the background; where all workers share a limit for the host, each connection has a slot from
before it is opened until it is closed, and one whose slot another worker waits for is not kept;
after `close` nothing is open any more.
Raises: ConversationError from `acquire` when opening fails; PoolClosedError after `close` began.
See: Postfix smtp_connection_cache_time_limit (idle), smtp_connection_reuse_count_limit (transactions),
smtp_connection_reuse_time_limit (age), default_destination_concurrency_limit (concurrency).
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from queued.smtp.client import SmtpConnection
from queued.tls.context import Contexts
from queued.tls.demanded import CLEAR
from shared.timed_wait import wait_for_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from queued.pacing.pace_host import Slot
    from queued.routing.route import Hop
    from queued.smtp.auth import Login
    from queued.smtp.own_secrets import OwnSecrets
    from queued.smtp.transaction import Timeouts
    from queued.tls.demanded import TlsWanted
from queued.values import PoolClosedError

_MOMENT = 5.0  # seconds that a refused connection waits for the fate of others to the same host
_GLANCE = 1.0  # seconds between two looks whether the slots of idle connections have lapsed

#: Waits for so many seconds; true as soon as a connection was given back that the session can have.
type Rest = Callable[[float], Awaitable[bool]]


class SessionWanted(NamedTuple):
    """How a host is to be spoken to; connections are shared only by those for whom the first four are equal.

    hostname: our name in EHLO. source: the local address to leave from, None for the system's choice. tls: what is
    asked of the host. login: our login, None for none. connect_gate: awaited before a new connection is
    opened, for intervals between connections and for its slot, where all workers share a limit for the host; what it
    raises ends the attempt. It waits for a slot by the function it is given, which says true as soon as a kept
    connection will do instead, and then ends with None.
    """

    hostname: str
    source: str | None = None
    tls: TlsWanted = CLEAR
    login: Login | None = None
    connect_gate: Callable[[Rest], Awaitable[Slot | None]] | None = None

    @property
    def key(self) -> tuple[str, str | None, TlsWanted, Login | None]:
        """The key that distinguishes sessions."""
        return self[:4]


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
        speaks: type[SmtpConnection] = SmtpConnection,
        secrets: OwnSecrets | None = None,
        discards: frozenset[str] = frozenset(),
    ) -> None:
        """`concurrency` counts connections per host and port; `contexts` are OpenSSL's settings.

        speaks: SMTP, or LMTP. secrets: what must not be read in a host's replies. discards: keywords of EHLO that count
        as not offered.
        """
        self._speaks = speaks
        self._secrets = secrets
        self._discards = discards
        self._contexts = contexts or Contexts()
        self._timeouts = timeouts
        self._concurrency = concurrency
        self._limits = limits or ReuseLimits()
        self._hosts: dict[tuple[str, int], _Host] = {}
        self._borrowed: set[SmtpConnection] = set()
        self._slots: dict[SmtpConnection, Slot] = {}
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
        return sum(len(host.idle) for host in self._hosts.values())

    async def serving(self, hop: Hop) -> int:
        """How many connections this host serves, in use or kept, once no more are on the way, or after a moment."""
        host = self._hosts.get((hop.host, hop.port))
        if host is None:
            return 0
        with suppress(TimeoutError):
            async with asyncio.timeout(_MOMENT):
                while host.opening:
                    await host.settled.wait()
        return host.open

    @asynccontextmanager
    async def acquire(self, hop: Hop, session: SessionWanted) -> AsyncIterator[SmtpConnection]:
        """A connection to the host for the body of the `async with`, waiting for a free one.

        Its `transactions` is 0 when it was opened just now; a fault or a refusal in phase mail on an older one may only
        mean that the host wants no more mail on it.
        """
        place = hop.host, hop.port
        host = self._hosts.get(place)
        if host is None:
            host = self._hosts[place] = _Host(place, self._concurrency)
        host.users += 1
        try:
            async with host.slots:
                connection = await self._take(host, session)
                self._borrowed.add(connection)
                host.borrowed += 1
                try:
                    yield connection
                finally:
                    self._borrowed.discard(connection)
                    host.borrowed -= 1
                    self._give_back(host, session, connection)
        finally:
            host.users -= 1
            self._forget_unused(host)
            self._changed.set()

    async def close(self) -> None:
        """Close what is idle, wait for what is borrowed, close that too; idempotent.

        Cancelled, it cuts every connection that is left: the caller's patience is the limit.
        """
        self._closing = True
        # An attempt that waits for a slot, or for a host to answer, has begun nothing: turned away, it can go back.
        for opening in self._openings:
            opening.cancel()
        for host in self._hosts.values():
            for _ in range(host.users):
                host.slots.release()
            host.closing = True
            host.wake_waiting()
            while host.idle:
                self._discard(host.idle.pop()[1])
        try:
            while self._chores or any(host.users for host in self._hosts.values()):
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            for chore in self._chores:
                chore.cancel()
            for connection in self._borrowed:
                connection.abort()
            raise
        finally:
            for host in self._hosts.values():
                host.stop_timer()
            self._hosts.clear()

    async def _take(self, host: _Host, session: SessionWanted) -> SmtpConnection:
        if self._closing:
            raise PoolClosedError
        if (kept := self._kept(host, session)) is not None:
            return kept
        if session.connect_gate is None:
            return await self._open(host, session)
        if host.idle and host.idle[0][1] in self._slots:  # of another session: its slot is of more use to this one
            self._discard(host.idle.popleft()[1])
        return await self._opened(host, session)

    async def _opened(self, host: _Host, session: SessionWanted) -> SmtpConnection:
        """A new connection with the gate's slot, or one that was given back meanwhile."""
        while True:
            slot = await self._gated(host, session)
            if isinstance(slot, SmtpConnection):
                return slot
            try:
                connection = await self._open(host, session)
            except BaseException:
                if slot is not None:
                    slot.done()
                raise
            if slot is None:
                return connection
            self._slots[connection] = slot
            if not slot.lapsed:
                return connection
            self._discard(connection)  # it took so long, or the process was stopped meanwhile

    async def _gated(self, host: _Host, session: SessionWanted) -> SmtpConnection | Slot | None:
        """Pass the gate before a new connection: its slot, if there are any; or a connection given back meanwhile."""
        assert session.connect_gate is not None  # noqa: S101 - as the caller has seen
        rest = _Resting(host, session.key)
        while (slot := await session.connect_gate(rest)) is None and rest.over:
            self._refuse_if_closing()
            if (kept := self._kept(host, session)) is not None:
                return kept
        return slot

    def _kept(self, host: _Host, session: SessionWanted) -> SmtpConnection | None:
        """The connection to go on with, if one is kept for this session."""
        while (connection := host.newest(session.key)) is not None:
            if self._may_stay(connection):
                return connection
            self._discard(connection)
        return None

    def _refuse_if_closing(self) -> None:
        if self._closing:
            raise PoolClosedError

    async def _open(self, host: _Host, session: SessionWanted) -> SmtpConnection:
        """A new connection; PoolClosedError if the pool begins to close before it is established."""
        self._refuse_if_closing()
        hostname, source, tls, login = session.key
        opening = asyncio.ensure_future(
            self._speaks.open(
                *host.key,
                hostname=hostname,
                timeouts=self._timeouts,
                source=source,
                tls=tls,
                contexts=self._contexts,
                login=login,
                secrets=self._secrets,
                discards=self._discards,
            )
        )
        self._openings.add(opening)
        host.opening += 1
        try:
            return await opening
        except asyncio.CancelledError:
            if opening.done() and not opening.cancelled() and not opening.exception():
                opening.result().abort()  # it was ready at the moment when it was no longer wanted
            current = asyncio.current_task()
            if self._closing and opening.cancelled() and current is not None and not current.cancelling():
                raise PoolClosedError from None
            raise
        finally:
            self._openings.discard(opening)
            host.opening -= 1
            host.tell_settled()

    def _give_back(self, host: _Host, session: SessionWanted, connection: SmtpConnection) -> None:
        slot = self._slots.get(connection)
        if self._closing or not self._may_stay(connection) or (slot is not None and slot.wanted):
            self._discard(connection)
            return
        host.idle.append((session.key, connection))
        host.wake_waiting()
        if len(host.idle) > self._concurrency:  # of several sessions: the host shall not hold them all
            self._discard(host.idle.popleft()[1])
        if host.timer is None:
            loop = asyncio.get_running_loop()
            seconds = self._limits.idle if slot is None else min(self._limits.idle, _GLANCE)
            host.timer = loop.call_later(seconds, self._sweep, host)

    def _may_stay(self, connection: SmtpConnection) -> bool:
        now, limits = asyncio.get_running_loop().time(), self._limits
        return (
            connection.usable
            and connection.transactions < limits.transactions
            and (connection.most is None or connection.transactions < connection.most)
            and now - connection.last_used < limits.idle
            and now - connection.opened_at < limits.age
            and not ((slot := self._slots.get(connection)) is not None and slot.lapsed)
        )

    def _sweep(self, host: _Host) -> None:
        """Close what has been idle too long; look again when the next one will have been."""
        host.timer = None
        looked_at, host.idle = host.idle, deque()
        for kept in looked_at:
            slot = self._slots.get(kept[1])
            if self._may_stay(kept[1]) and not (slot is not None and slot.wanted):
                host.idle.append(kept)
            else:
                self._discard(kept[1])
        if host.idle:
            loop = asyncio.get_running_loop()
            soonest = min(connection.last_used for _, connection in host.idle) + self._limits.idle
            if any(connection in self._slots for _, connection in host.idle):
                soonest = min(soonest, loop.time() + _GLANCE)
            host.timer = loop.call_at(soonest, self._sweep, host)
        self._forget_unused(host)

    def _forget_unused(self, host: _Host) -> None:
        """A host we have nothing to do with any more costs nothing."""
        if not host.users and not host.idle and self._hosts.get(host.key) is host:
            host.stop_timer()
            del self._hosts[host.key]

    def _discard(self, connection: SmtpConnection) -> None:
        """Close in the background: no attempt need wait for a QUIT."""
        if connection.usable:
            self._start(self._ended(connection))
        else:
            connection.abort()
            self._free(connection)

    async def _ended(self, connection: SmtpConnection) -> None:
        try:
            await connection.close()
        finally:
            self._free(connection)

    def _free(self, connection: SmtpConnection) -> None:
        """It is closed: another may be opened in its place, here or by another worker."""
        slot = self._slots.pop(connection, None)
        if slot is not None:
            slot.done()

    def _start(self, chore: Coroutine[object, object, None]) -> None:
        running = asyncio.ensure_future(chore)
        self._chores.add(running)
        running.add_done_callback(self._finished)

    def _finished(self, chore: asyncio.Task[None]) -> None:
        self._chores.discard(chore)
        self._changed.set()


class _Resting:
    """How a gate waits: `over` once a connection was given back that the session can have, or the pool closes."""

    def __init__(self, host: _Host, key: object) -> None:
        self.over = False
        self._host = host
        self._key = key

    async def __call__(self, seconds: float) -> bool:
        returned = self._host.returned
        await wait_for_event(returned, seconds)
        self.over = returned.is_set() and (self._host.closing or self._host.holds(self._key))
        return self.over


class _Host:
    """The connections of one host and port."""

    def __init__(self, key: tuple[str, int], concurrency: int) -> None:
        self.key = key
        self.slots = asyncio.Semaphore(concurrency)
        self.idle: deque[tuple[object, SmtpConnection]] = deque()  # each with the key of its session, newest last
        self.opening = self.borrowed = 0  # connections on the way, and in use
        self.settled = asyncio.Event()  # set once a connection is open, or will not be, and then replaced
        self.users = 0  # holders of a slot and deliveries that wait for one
        self.timer: asyncio.TimerHandle | None = None
        self.returned = asyncio.Event()  # set once a connection is kept, and then replaced
        self.closing = False

    def wake_waiting(self) -> None:
        """Let attempts that wait for a slot check for a kept connection."""
        self.returned.set()
        self.returned = asyncio.Event()

    def tell_settled(self) -> None:
        """Let attempts that the host turned away check whether it serves others."""
        self.settled.set()
        self.settled = asyncio.Event()

    @property
    def open(self) -> int:
        """Connections in use or kept."""
        return self.borrowed + len(self.idle)

    def holds(self, key: object) -> bool:
        """Whether an idle connection is of this session."""
        return any(kept == key for kept, _ in self.idle)

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
