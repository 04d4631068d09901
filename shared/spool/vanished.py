"""vanished — finds accepted messages that are missing on a server that took over

Owns: the messages that are remembered after their 250, and the query for them after PostgreSQL was away.
Guarantees: with synchronous replication nothing is ever found. Remembered messages that a lagging standby, a restored
    backup or a crash with synchronous_commit off has lost are logged, each once, by spool.lost_after_failover. Their
    number is bounded, and accepting mail never waits for any of this.
Raises: nothing; a query that fails is repeated after the next reconnect.
See: docs/explanation/durability.md; sql/schema/10_orphan.sql, `spool_vanished`.
BUGS: a process that ends during the outage takes its memory with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import batched
from time import monotonic
from typing import TYPE_CHECKING, Final
from uuid import UUID

from shared.errors import DatabaseUnavailable
from shared.observe import events
from shared.postgres import database, timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds before an outage that are looked back. Far below the day that history is kept at least, so that mail which
#: was delivered and forgotten is never taken for lost; far above the lag of a standby that anybody would promote.
WINDOW: Final = 3600.0
_AT_ONCE: Final = 5000  # ids in a question: some 0.1 s
_IN_A_LINE: Final = 100  # ids in a line of log


@dataclass(frozen=True, slots=True)
class _Group:
    """Messages of one commit: when it came back (monotonic seconds), and their ids in 16 octets each."""

    at: float
    ids: tuple[bytes, ...]


class AcceptedMessages:
    """The last accepted messages, at most `limit` of them (0: none). Pure: every time is given."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._groups: deque[_Group] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, ids: Sequence[UUID], now: float) -> None:
        """These were committed; the oldest go when there are more than `limit`."""
        if not self.limit:
            return
        self._groups.append(_Group(now, tuple(each.bytes for each in ids)))
        self._count += len(ids)
        while self._count > self.limit:
            self._drop_oldest()

    def forget_before(self, moment: float) -> None:
        """Drop what was committed before this moment."""
        while self._groups and self._groups[0].at < moment:
            self._drop_oldest()

    def forget(self, ids: set[UUID]) -> None:
        """Drop these messages."""
        gone = {each.bytes for each in ids}
        kept = (_Group(g.at, tuple(each for each in g.ids if each not in gone)) for g in self._groups)
        self._groups = deque(group for group in kept if group.ids)
        self._count = sum(len(group.ids) for group in self._groups)

    def ids(self) -> list[UUID]:
        """All that are remembered, the oldest first."""
        return [UUID(bytes=each) for group in self._groups for each in group.ids]

    def _drop_oldest(self) -> None:
        self._count -= len(self._groups.popleft().ids)


class Vanished:
    """Remembers what was accepted, and asks for it when PostgreSQL was away."""

    def __init__(self, conninfo: str, application_name: str, limit: int) -> None:
        """`limit` is how many messages are remembered; with 0 nothing is ever asked."""
        self.memory = AcceptedMessages(limit)
        self._conninfo = conninfo
        self._application_name = application_name
        self._history = "unknown"
        self._away_since: float | None = None
        self._doubtful = asyncio.Event()

    def committed(self, ids: Sequence[UUID]) -> None:
        """These got through."""
        self.memory.add(ids, monotonic())

    def away(self) -> None:
        """PostgreSQL, or the way to it, is in trouble; what was accepted until now is looked for when it is back."""
        if self._away_since is None:
            self._away_since = monotonic()

    def reconnected(self) -> None:
        """A connection was made: perhaps to another server than the last one."""
        if self.memory.limit:
            self._doubtful.set()

    async def run(self) -> None:
        """Ask after each reconnect, until cancelled."""
        while True:
            await self._doubtful.wait()
            self._doubtful.clear()
            since = self._away_since if self._away_since is not None else monotonic()
            self.memory.forget_before(since - WINDOW)
            try:
                await self._ask()
            except (*database.OUTAGE, *database.REFUSAL, DatabaseUnavailable) as error:
                said, away = database.unavailable(error), database.is_away(error)
                events.emit("spool.unproven", messages=len(self.memory), error=said, away=away)
            else:
                self._away_since = None

    async def _ask(self) -> None:
        connection = await database.connect(self._conninfo, self._application_name)
        try:
            before, self._history = self._history, await timeline.current(connection) or self._history
            gone: list[UUID] = []
            for some in batched(self.memory.ids(), _AT_ONCE):
                gone += [row.id for row in await database.fetch(connection, "spool_vanished", ids=list(some))]
        finally:
            await connection.close()
        self.memory.forget(set(gone))
        for some in batched(gone, _IN_A_LINE):
            events.emit(
                "spool.lost_after_failover",
                messages=len(gone),
                before=before,
                history=self._history,
                ids=" ".join(map(str, some)),
            )
