"""wakeup — LISTEN, as a hint, and the proof that it is heard

Owns: one listening connection per process, setting an event when mail for this worker may have arrived, and the echo
    probe that finds a connection which looks open and hears nothing.
Guarantees: a lost notification costs at most one poll interval, since polling finds all mail. After every
    (re)connection the event is set and `missed` is called, because notifications before LISTEN took hold are unknown.
    A notification carries only the partition id. Any session may notify anything, so a payload is compared, remembered
    if it is short, handed to PostgreSQL as a value, and used for nothing else. Echoes are sent over another
    connection: a pooled session hears its own notifications, but not those of others.
Raises: nothing; an outage is logged as wakeup.lost, silence as wakeup.deaf or, when nothing was ever heard, once as
    wakeup.swallowed. Each is tried again with growing, jittered pauses; the last every few minutes.
See: PostgreSQL manual, LISTEN; sql/queries/delivery/wakeup.sql, wakeup_concerns; docs/explanation/wake-up.md.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from shared.errors import DatabaseUnavailable
from shared.mail.partition import GENERAL, channels
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 15.0
_OPENING = 15.0  # seconds for a connection and its LISTEN
_PATIENCE = 5.0  # seconds for an echo; a busy server takes milliseconds
_SWALLOWED_PAUSE = 180.0  # seconds until a pooler is asked again whether it still swallows what we listen for
_HINT = (
    "a transaction pooler may be in between: set wakeup.uri to a direct connection to PostgreSQL, "
    "or set wakeup.mode to poll"
)
_ECHO = "echo:"  # no partition id has a colon, so no worker takes another's echo for mail
_ANY = "any:"  # mail of a partition whose id does not travel
_LONGEST_ID = 64  # characters
_MOST_REMEMBERED = 10_000


async def listen(
    conninfo: str,
    application_name: str,
    where: str,
    due: asyncio.Event,
    *,
    missed: Callable[[], None] | None = None,
    signals: Mapping[str, Callable[[], None]] | None = None,
    pool: database.Pool | None = None,
    probe: float = 30.0,
) -> None:
    """Set `due` whenever a notification may concern rows that `where` selects. Runs until cancelled.

    `missed` is called when notifications may have gone unheard; each of `signals` when what it is named for is heard,
    which has a colon so that no partition id is meant. Over `pool` an echo is sent at once and every `probe`
    seconds; without a pool nothing is probed.
    """
    listener = _Listener(where, due, pool, probe, signals or {})
    pause, logged = _FIRST_PAUSE, False
    while True:
        connection: database.Connection | None = None
        listener.heard = pool is None
        try:
            async with asyncio.timeout(_OPENING):
                connection = await database.connect(conninfo, application_name)
                await connection.execute(_listening(where))
            events.emit("wakeup.listening")
            if missed is not None:
                missed()
            due.set()
            await listener.run(connection)
        except (_Silence, *database.OUTAGE, *database.REFUSAL, DatabaseUnavailable) as error:
            # Only what was heard proves a connection: without that the pauses go on growing.
            pause = _FIRST_PAUSE if listener.heard else pause
            wait = _jittered(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            if not isinstance(error, _Silence):
                events.emit("wakeup.lost", error=error, seconds=wait, away=database.is_away(error))
            elif listener.ever_heard:
                events.emit("wakeup.deaf", seconds=wait)
            else:
                wait = _jittered(_SWALLOWED_PAUSE)
                if not logged:
                    events.emit("wakeup.swallowed", hint=_HINT, seconds=wait)
                logged = True
        finally:
            if connection is not None:
                await connection.close()
        await asyncio.sleep(wait)


class _Silence(Exception):
    """An echo was sent and did not come."""


class _Listener:
    """The notifications of one connection after the other, and the state that is kept between them."""

    def __init__(
        self,
        where: str,
        due: asyncio.Event,
        pool: database.Pool | None,
        probe: float,
        signals: Mapping[str, Callable[[], None]],
    ) -> None:
        self._where = where
        self._signals = signals
        self._due = due
        self._pool = pool
        self._interval = probe
        self._concerns: dict[str, bool] = {}
        self._token = ""
        self._echo = asyncio.Event()
        self._silent = False
        self.heard = False  # whether this connection has proven itself
        self.ever_heard = False

    async def run(self, connection: database.Connection) -> None:
        """Until the connection ends, which is always an exception."""
        self._silent = False
        probing = asyncio.create_task(self._probe(connection, self._pool)) if self._pool else None
        try:
            await self._forward(connection)
        except database.OUTAGE:
            if self._silent:
                raise _Silence from None
            raise
        finally:
            if probing is not None:
                probing.cancel()
                with suppress(asyncio.CancelledError):
                    await probing

    async def _forward(self, connection: database.Connection) -> None:
        """Notifications whose partition the condition may select set the event.

        What PostgreSQL says of a partition id is remembered: a worker hears of few ids, and the answer depends on
        nothing else.
        """
        while True:
            # Notifications are gathered first: the connection cannot run a query while it listens.
            heard = {n.payload async for n in connection.notifies(timeout=None, stop_after=1)}
            heard |= {n.payload async for n in connection.notifies(timeout=0)}
            self.heard = self.ever_heard = True
            if self._token in heard:
                self._echo.set()
            for signal in heard & self._signals.keys():
                self._signals[signal]()
            partids = {payload for payload in heard - self._signals.keys() if not payload.startswith(_ECHO)}
            odd = {payload for payload in partids if payload == _ANY or len(payload) > _LONGEST_ID}
            partids -= odd
            for partid in partids - self._concerns.keys():
                try:
                    [row] = await database.fetch(connection, "wakeup_concerns", where=self._where, partid=partid)
                    self._concerns[partid] = row[0]
                except database.OUTAGE:
                    raise
                except database.REFUSAL:
                    self._concerns[partid] = True  # a condition that cannot be asked about this id: look
            if ours := len(odd) + sum(self._concerns[partid] for partid in partids):
                events.emit("wakeup.heard", partitions=ours)
                self._due.set()
            if len(self._concerns) > _MOST_REMEMBERED:
                self._concerns.clear()

    async def _probe(self, connection: database.Connection, pool: database.Pool) -> None:
        """Send an echo now and then; hang up on a connection that does not receive it."""
        while True:
            self._token = f"{_ECHO}{uuid.uuid4().hex}"
            self._echo.clear()
            if await _notified(pool, self._token):
                try:
                    async with asyncio.timeout(_PATIENCE):
                        await self._echo.wait()
                except TimeoutError:
                    self._silent = True
                    database.hang_up(connection)
                    return
            await asyncio.sleep(_jittered(self._interval))


async def _notified(pool: database.Pool, payload: str) -> bool:
    """Whether this could be sent: that it could not says nothing about the listener, and others report the outage."""
    try:
        async with asyncio.timeout(_PATIENCE), pool.connection() as connection:
            await database.fetch(connection, "wakeup_echo", echo=payload)
    except (*database.OUTAGE, *database.REFUSAL):
        return False
    return True


def _listening(where: str) -> bytes:
    """The statements, in one message: our own names, without a character that needs quoting."""
    return "; ".join(f"LISTEN {name}" for name in sorted({GENERAL, *channels(where)})).encode()


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.5)
