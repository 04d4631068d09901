"""collector — collects new tokens, batch after batch, until it is stopped

Owns: the loop: a hint, or the end of a wait; one transaction that marks tokens and hands them over; what follows an
    outage.
Guarantees: polling finds every token; a hint only shortens the wait. Tokens are marked in the transaction in which they
    are handed over, and that of a reader that takes nothing for a minute is ended. Several collectors share the tokens.
    A token that is refused for what it is, is marked, said and never tried again.
Raises: OutputClosed.
See: sql/accounts/README.md, "Collecting".
"""

from __future__ import annotations

import asyncio
import random
from time import monotonic
from typing import TYPE_CHECKING

from collect.output import Refused
from collect.token import in_order
from shared.errors import DatabaseUnavailable, NotDurable
from shared.failure_points import reach
from shared.observe import events
from shared.postgres import database
from shared.timed_wait import wait_for_event

if TYPE_CHECKING:
    from datetime import timedelta

    from collect.batch import Pace
    from collect.output import Output
    from collect.token import Token

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 15.0
_FORGET_EVERY, _FORGET_BATCH = 3600.0, 1000  # seconds, tokens


class Collector:
    """One collector of one installation; `schema` is quoted."""

    def __init__(self, conninfo: str, schema: str, pace: Pace, poll: float, output: Output) -> None:
        self._conninfo = conninfo
        self._parts = {"schema": schema}
        self._pace = pace
        self._poll = poll
        self.output = output
        self.due = asyncio.Event()
        self._at_once = self._draining = True
        self._stopping = False
        self._ended = asyncio.Event()

    def missed(self) -> None:
        """Notifications may have gone unheard: collect at once what there is."""
        self._at_once = self._draining = True

    def stop(self) -> None:
        """Begin no further batch."""
        self._stopping = True
        self.due.set()

    async def drained(self) -> None:
        """Wait for the batch in hand."""
        await self._ended.wait()

    async def run(self) -> None:
        """Collect until stopped; through outages, and refusals such as a read-only server's."""
        pause = _FIRST_PAUSE
        try:
            while not self._stopping:
                try:
                    connection = await database.connect(self._conninfo, "pillarbox collect")
                    try:
                        await database.keep_plans(connection)
                        await database.fetch(connection, "collect_patience")
                        events.answered()
                        pause = _FIRST_PAUSE
                        await self._collect(connection)
                    finally:
                        await connection.close()
                except (*database.OUTAGE, *database.REFUSAL, DatabaseUnavailable, NotDurable) as error:
                    wait = pause * random.uniform(0.5, 1.5)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    events.emit("collect.unavailable", error=error, seconds=wait, away=database.is_away(error))
                    self._at_once = self._draining = True
                    await asyncio.sleep(wait)
        finally:
            self._ended.set()
        await asyncio.Event().wait()  # a part of a daemon that ends, ends it: the stop does that

    async def _collect(self, connection: database.Connection) -> None:
        while not self._stopping:
            self.due.clear()  # before the tokens are looked at, so that a hint meanwhile is not lost
            if self._at_once:
                self._at_once = False
                full = self._pace.taken(await self._batch(connection))
                self._draining &= full
                self._at_once |= full and (self._draining or not self._pace.wait)
                continue
            due_in = await self._due_in(connection)
            wait = self._poll if due_in is None else due_in
            hint_collects = not self._pace.wait
            if not wait:
                self._at_once = True
                continue
            hinted = await wait_for_event(self.due, wait)
            self._at_once |= hint_collects or not hinted

    async def _due_in(self, connection: database.Connection) -> float | None:
        """Seconds until the next batch is due; None where a hint or the next poll says."""
        if not self._pace.wait:
            return None
        [row] = await database.fetch_filled(connection, "token_waiting", self._parts, keep=True, most=self._pace.size)
        return self._pace.due_in(row.waiting, monotonic())

    async def _batch(self, connection: database.Connection) -> int:
        """Hand one batch over; how many tokens it had."""
        began = monotonic()
        try:
            async with connection.transaction():
                tokens = await self._mark(connection)
                if tokens:
                    await self.output.hand_over(connection, tokens)
                    reach("collect.before_commit")
        except Refused:
            async with connection.transaction():
                tokens = await self._mark(connection)
                if tokens:
                    await self.output.hand_over_apart(connection, tokens)
        if tokens:
            events.emit("collect.batch", tokens=len(tokens), seconds=monotonic() - began)
        return len(tokens)

    async def _mark(self, connection: database.Connection) -> list[Token]:
        most = self._pace.size
        rows = await database.fetch_filled(connection, "token_collect", self._parts, keep=True, octets=True, most=most)
        return in_order(rows)


async def forget(conninfo: str, schema: str, keep: timedelta) -> None:
    """Forget old tokens, every hour; an outage or a refusal only delays it."""
    while True:
        try:
            connection = await database.connect(conninfo, "pillarbox collect")
            try:
                forgotten = _FORGET_BATCH
                while forgotten == _FORGET_BATCH:
                    [row] = await database.fetch_filled(
                        connection, "tokens_forget", {"schema": schema}, age=keep, batch=_FORGET_BATCH
                    )
                    forgotten = row.forgotten
                    if forgotten:
                        events.emit("collect.forgot", tokens=forgotten)
            finally:
                await connection.close()
        except (*database.OUTAGE, *database.REFUSAL, DatabaseUnavailable) as error:
            events.emit("collect.unforgotten", error=error, away=database.is_away(error))
        await asyncio.sleep(_FORGET_EVERY * random.uniform(0.5, 1.5))
