"""live — the figures of this moment, read by one task for all viewers

Owns: the task that reads them, and what it read last.
Guarantees: nothing is read while no page is open, and no more often than every INTERVAL however many are. Where
    PostgreSQL does not answer, the last figures stay, and say so. Doctor and the proofs of who serves what are
    renewed every EXAMINED seconds, one examination at a time (httpd/routes/doctor.py shares its lock).
See: operate/now.py.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Final

from operate import now, partition_ids
from operate.doctor.whole import examine
from operate.errors import Refused
from shared.errors import PillarboxError
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from httpd.files import Files
    from operate.doctor.checks import Finding
    from operate.now import Now
    from shared.postgres.coverage import Partid

INTERVAL: Final = 3.0  # seconds
EXAMINED: Final = 60.0
_PATIENCE: Final = 3.0  # seconds for one statement


@dataclass(frozen=True, slots=True)
class Examined:
    """What takes longer to find out. findings: None before the first examination. why: there is none."""

    findings: list[Finding] | None = None
    served: dict[Partid, list[str]] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read. trouble: why the figures are not those of this moment."""

    number: int
    figures: Now | None
    examined: Examined
    trouble: str = ""


class Live:
    """The figures, as long as somebody looks."""

    def __init__(self, pool: database.Pool, files: Files, examining: asyncio.Lock) -> None:
        self._pool = pool
        self._files = files
        self._examining = examining
        self._reading = Reading(0, None, Examined())
        self._read_at = self._examined_at = float("-inf")
        self._one = asyncio.Lock()
        self._new = asyncio.Event()
        self._watched = asyncio.Event()
        self._viewers = 0
        self._closing = asyncio.Event()
        self._examination: asyncio.Task[None] | None = None

    @property
    def viewers(self) -> int:
        """How many look."""
        return self._viewers

    async def latest(self) -> Reading:
        """The figures, not older than INTERVAL where PostgreSQL answers."""
        async with self._one:
            if monotonic() - self._read_at >= INTERVAL:
                await self._read()
        return self._reading

    async def readings(self) -> AsyncIterator[Reading]:
        """Each new reading, until httpd stops."""
        self._viewers += 1
        self._watched.set()
        seen = -1
        try:
            while not self._closing.is_set():
                new = self._new
                if self._reading.number != seen and self._reading.number:
                    seen = self._reading.number
                    yield self._reading
                else:
                    await new.wait()
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._watched.clear()

    async def run(self) -> None:
        """Read while somebody looks."""
        try:
            while True:
                await self._watched.wait()
                await self.latest()
                if monotonic() - self._examined_at >= EXAMINED and self._examination is None:
                    self._examination = asyncio.create_task(self._examine(), name="examination")
                await asyncio.sleep(INTERVAL)
        finally:
            if self._examination is not None:
                self._examination.cancel()
                with suppress(asyncio.CancelledError):
                    await self._examination

    def close(self) -> None:
        """End what is being looked at."""
        self._closing.set()
        self._new.set()

    async def _read(self) -> None:
        try:
            async with self._pool.connection() as connection, connection.transaction():
                await database.fetch(connection, "now_patience", milliseconds=str(round(_PATIENCE * 1000)))
                figures = await now.now(connection)
        except (*database.REFUSAL, *database.OUTAGE, PillarboxError) as error:
            self._publish(replace(self._reading, trouble=f"the figures cannot be read: {database.reason(error)}"))
        else:
            self._publish(replace(self._reading, figures=figures, trouble=""))
        self._read_at = monotonic()

    def _publish(self, reading: Reading) -> None:
        self._reading = replace(reading, number=self._reading.number + 1)
        self._new.set()
        self._new = asyncio.Event()

    async def _examine(self) -> None:
        try:
            examined = await self._examined()
        except (*database.REFUSAL, *database.OUTAGE, PillarboxError) as error:
            why = error.reason if isinstance(error, Refused) else database.reason(error)
            examined = replace(self._reading.examined, why=why)
        except Exception as error:  # noqa: BLE001 - the figures go on without it
            events.emit("request.failed", id=None, error=repr(error))
            examined = replace(self._reading.examined, why="the examination failed; the log has the reason")
        finally:
            self._examined_at = monotonic()
            self._examination = None
        self._publish(replace(self._reading, examined=examined))

    async def _examined(self) -> Examined:
        smtpd = await self._files.smtpd()
        environment = smtpd.environment
        queued = await self._files.queued()
        collect = await self._files.collect()
        async with self._examining:
            findings = await examine(smtpd, queued, collect=collect, offline=True)
            conninfo = database.resolve_running(environment.database.uri, environment.var)
            served: dict[Partid, list[str]] = {}
            figures = self._reading.figures
            if conninfo is not None and figures is not None:
                partids = dict.fromkeys([*partition_ids.configured(smtpd), *(each.id for each in figures.partitions)])
                connection = await database.connect(conninfo, "pillarbox doctor")
                try:
                    served = await now.served(connection, figures.workers, list(partids))
                finally:
                    await connection.close()
        return Examined(findings, served)
