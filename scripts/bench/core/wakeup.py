"""wakeup — measures the time from COMMIT to a worker's wake-up, and the claim that follows

Owns: one message at a time through the real spool, LISTEN, claim and record: the time from COMMIT until
    shared.postgres.wakeup sets its event, and the time to claim that one row.
Guarantees: nothing polls: a notification missing for ten seconds is an error. One event loop sees both the commit and
    the wake-up; its own delay is part of the figure.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from statistics import median, quantiles
from time import monotonic
from typing import TYPE_CHECKING

from queued.claiming.claim import Claimer
from queued.result import Recorder
from queued.values import Result
from scripts.bench.core.schedule import submission
from scripts.bench.core.server import NAME, agree, content, fill, settle_down
from shared.config.queued.settings import Claim
from shared.config.smtpd.settings import Spool as SpoolSettings
from shared.mail.outcome import Outcome
from shared.postgres import database, wakeup
from shared.spool.spool import Spool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from scripts.bench.core.server import Server

_PATIENCE = 10.0
_EACH = 100  # recipients of each deferred message
_WHERE = "metadata->>'_partid' IN ('1', '2', '3', '4', '5', '6')"


@dataclass(frozen=True, slots=True)
class Woken:
    """Seconds: the wake-up's 50th and 99th percentile, and the 50th of the claim of one row."""

    p50: float
    p99: float
    claim: float


async def wake(server: Server, samples: int, *, backlog: int = 0, snapshot: bool = False) -> Woken:
    """Wake a worker `samples` times; `backlog` rows are due tomorrow; `snapshot` keeps one open."""
    async with server.cell() as uri, server.session(uri) as connection:
        if backlog:
            await fill(connection, backlog // _EACH, 1024, each=_EACH, wait=timedelta(days=1))
        await settle_down(connection)
        async with server.session(uri) as reader:
            if snapshot:
                await database.fetch(reader, "bench_snapshot")
            woken, claimed = await _sample(uri, samples)
        [ledger] = await database.fetch(connection, "bench_ledger")
        agree("wake-up", ledger, {"waiting": 0, "archived": samples, "tried": samples})
    return Woken(median(woken), quantiles(woken, n=100)[98], median(claimed))


async def _sample(uri: str, samples: int) -> tuple[list[float], list[float]]:
    """Seconds from COMMIT to the wake-up, and of the claim, for each message."""
    due = asyncio.Event()
    pool = await database.open_pool(uri, NAME, 2)
    spool, recorder = Spool(uri, SpoolSettings(), NAME), Recorder(pool, "bench", ahead=1)
    claimer = Claimer(_WHERE, "bench", Claim())
    woken, took = [], []
    try:
        async with _running(spool.run(), spool.notify(), recorder.run(), wakeup.listen(uri, NAME, _WHERE, due)):
            await _set(due)  # LISTEN is active
            for number in range(samples):
                due.clear()
                awake = asyncio.create_task(_set(due))
                await spool.submit(submission(number, content(1024)))
                committed = monotonic()
                woken.append(max(0.0, await awake - committed))
                async with pool.connection() as connection:
                    began = monotonic()
                    claimed = await claimer.take(connection, 200)
                    took.append(monotonic() - began)
                recorder.add([Result(c, _ACCEPTED, "192.0.2.25:25", timedelta(0), "success", None) for c in claimed])
                await recorder.drained()
    finally:
        await pool.close()
    return woken, took


_ACCEPTED = Outcome("delivered", "recipient", 250, "2.0.0", "250 2.0.0 Ok")


async def _set(due: asyncio.Event) -> float:
    """Wait for the event; the time when it was set."""
    async with asyncio.timeout(_PATIENCE):
        await due.wait()
    return monotonic()


@asynccontextmanager
async def _running(*parts: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run these coroutines for the block."""
    running = [asyncio.create_task(part) for part in parts]
    try:
        yield
    finally:
        for each in running:
            each.cancel()
        await asyncio.wait(running)
