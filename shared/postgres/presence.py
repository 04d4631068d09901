"""presence — this process's row in the register of daemons

Owns: writing the row at the start, renewing it every BEAT, and removing it when the process stops.
Guarantees: a process that cannot reach the register works as before: the row is for people. It has a connection of its
    own, so that it waits for no mail and no mail for it. A failure is logged once, until the register is reached again.
See: sql/schema/13_register.sql; shared/observe/flow.py.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass, field
from datetime import timedelta
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.errors import DatabaseUnavailable
from shared.observe import events
from shared.observe.flow import Flow
from shared.postgres import database
from shared.version import version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

BEAT: Final = timedelta(seconds=5)
#: Destinations that a row names at most; the table takes 50.
MOST: Final = 20
_PATIENCE: Final = 5.0  # seconds for one beat


@dataclass(frozen=True, slots=True)
class Identity:
    """A process: what it is (of a worker its id in queued.yaml), and the host and process it runs on.

    The mark tells starts apart. Containers with the network of their host share its name, and are process 1 in each.
    """

    id: str
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    mark: str = field(default_factory=lambda: token_hex(3))

    def __str__(self) -> str:
        """As in queue.worker, attempts.worker and the registers."""
        return f"{self.id}@{self.host}:{self.pid}-{self.mark}"


class InHand(NamedTuple):
    """One destination of a worker: attempts under way and allowed (0: it does not answer), and deliveries that wait."""

    destination: str
    attempts: int
    allowed: int
    waiting: int


class Presence:
    """One process's entry."""

    def __init__(
        self, conninfo: str, kind: str, identity: Identity | None = None, busy: Callable[[], Sequence[InHand]] = tuple
    ) -> None:
        """kind: smtpd, queued, httpd or collect. busy: the destinations to report, at most MOST."""
        self._conninfo = conninfo
        self._kind = kind
        self._identity = identity or Identity(kind)
        self._busy = busy
        self._flow = Flow()
        self._started: datetime | None = None
        self._connection: database.Connection | None = None
        self._left = False
        self._failing = False
        self._writing = asyncio.Lock()  # a beat under way when we leave must not put the row back

    async def run(self) -> None:
        """Count, and renew the row, until cancelled."""
        try:
            with events.watched(self._flow.watchers()):
                while not self._left:
                    await self._attempt(self._beat)
                    await asyncio.sleep(BEAT.total_seconds())
            await asyncio.Event().wait()  # the end of a part would be the end of the daemon
        finally:
            await self._close()

    async def leave(self) -> None:
        """Remove the row; if PostgreSQL is away, five beats without news say the same."""
        self._left = True
        try:
            await self._attempt(self._leave)
        finally:
            await self._close()

    async def _attempt(self, work: Callable[[database.Connection], Awaitable[None]]) -> None:
        try:
            async with self._writing, asyncio.timeout(_PATIENCE):
                if self._connection is None:
                    self._connection = await database.connect(self._conninfo, f"pillarbox {self._kind} register")
                await work(self._connection)
            self._failing = False
        except (OSError, TimeoutError, DatabaseUnavailable, *database.OUTAGE, *database.REFUSAL) as error:
            if not self._failing:
                events.emit("register.failed", error=error, away=database.is_away(error))
            self._failing = True
            await self._close()

    async def _beat(self, connection: database.Connection) -> None:
        if self._left:
            return
        who, busy = self._identity, self._busy()[:MOST]
        [row] = await database.fetch(
            connection,
            "daemon_beat",
            daemon=str(who),
            kind=self._kind,
            id=who.id,
            version=version(),
            host=who.host,
            pid=who.pid,
            started=self._started,
            beat=BEAT,
            destinations=[each.destination for each in busy],
            attempts=[each.attempts for each in busy],
            allowed=[each.allowed for each in busy],
            waiting=[each.waiting for each in busy],
            accepted=self._flow.sums("accepted"),
            delivered=self._flow.sums("delivered"),
            deferred=self._flow.sums("deferred"),
            failed=self._flow.sums("failed"),
        )
        self._started = row.started

    async def _leave(self, connection: database.Connection) -> None:
        await database.fetch(connection, "daemon_leave", daemon=str(self._identity))

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
