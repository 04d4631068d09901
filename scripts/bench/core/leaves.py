"""leaves — measures the cost of many leaves, for one worker that serves them all and for 32 that share them out

Guarantees: uses the real Claimer and Recorder over pools like a worker's. Every cell's ledger is checked, so an
    `out of shared memory` is an error and never a figure. Locks are the maximum in pg_locks while the 32 workers drain
    the queue; the server's lock table has its default size.
See: queued/claiming/leaves.py; docs/explanation/benchmarks.md.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, Final

from queued.claiming.claim import Claimer
from queued.result import Recorder
from queued.values import Result
from scripts.bench.core.server import agree, content, settle_down
from shared.config.queued.settings import Claim
from shared.mail.message import new_message_id
from shared.mail.outcome import Outcome
from shared.postgres import database, migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from queued.values import Claimed
    from scripts.bench.core.server import Server

WORKERS: Final = 32
_BATCH: Final = 50
_EACH: Final = 3  # batches for each worker
_SIZE: Final = 1024
_DELIVERED: Final = Outcome("delivered", "recipient", 250, "2.0.0", "250 2.0.0 Ok")


@dataclass(frozen=True, slots=True)
class Found:
    """The figures for one number of leaves: milliseconds for 50 results of a single worker; rows per second and the
    maximum of locks for 32 workers.
    """

    settle: float
    rows_s: float
    locks: int


async def measured(server: Server, number: int, batches: int) -> Found:
    """Measure `number` leaves; the single worker takes `batches` of 50."""
    async with server.cell(empty=True) as uri:
        await asyncio.to_thread(migrate.migrate, uri, {str(n): (str(n),) for n in range(1, number + 1)}, number)
        async with server.session(uri) as connection:
            await _fill(connection, _BATCH * batches, number)
            await settle_down(connection)
            times = await _alone(uri, batches)
            await _fill(connection, _BATCH * _EACH * WORKERS, number)
            await settle_down(connection)
            watching = asyncio.create_task(_most_locks(uri))
            began = monotonic()
            await asyncio.gather(*(_drain(uri, where) for where in _conditions(number)))
            seconds = monotonic() - began
            watching.cancel()
            [ledger] = await database.fetch(connection, "bench_ledger")
            rows = _BATCH * (batches + _EACH * WORKERS)
            agree(
                f"{number} leaves, {WORKERS} workers",
                ledger,
                {"waiting": 0, "archived": rows, "distinct_archived": rows, "tried": rows, "held": 0},
            )
        # The first half warms up: the server plans, and the driver prepares repeated statements.
        return Found(median(times[len(times) // 2 :]) * 1e3, _BATCH * _EACH * WORKERS / seconds, await watching)


def _conditions(number: int) -> list[str]:
    """Whole leaves for each worker; several share one where there are more workers than leaves."""
    ids: list[list[str]] = [[] for _ in range(WORKERS)]
    for n in range(max(number, WORKERS)):
        ids[n % WORKERS].append(f"'{n % number + 1}'")
    return [f"metadata->>'_partid' IN ({', '.join(each)})" for each in ids]


async def _fill(connection: database.Connection, messages: int, partitions: int) -> None:
    ids = [new_message_id() for _ in range(messages)]
    await database.fetch(connection, "bench_messages", ids=ids, body=content(_SIZE))
    wait = timedelta(0)
    await database.fetch(connection, "bench_queue", ids=ids, each=1, size=_SIZE, partitions=partitions, wait=wait)


@asynccontextmanager
async def _worker(uri: str, where: str) -> AsyncIterator[tuple[database.Pool, Claimer, Recorder]]:
    pool = await database.open_pool(uri, "pillarbox bench worker", 2)
    recorder = Recorder(pool, "bench", ahead=1)
    recording = asyncio.create_task(recorder.run())
    try:
        yield pool, Claimer(where, "bench", Claim(batch=_BATCH)), recorder
    finally:
        recording.cancel()
        await asyncio.wait([recording])
        await pool.close()


async def _alone(uri: str, batches: int) -> list[float]:
    """Seconds for each group of 50 results."""
    times = []
    async with _worker(uri, "true") as (pool, claimer, recorder):
        for _ in range(batches):
            async with pool.connection() as connection:
                claimed = await claimer.take(connection, _BATCH)
            began = monotonic()
            recorder.add(_delivered(claimed))
            await recorder.drained()
            times.append(monotonic() - began)
    return times


async def _drain(uri: str, where: str) -> None:
    async with _worker(uri, where) as (pool, claimer, recorder), pool.connection() as connection:
        while claimed := await claimer.take(connection, _BATCH):
            recorder.add(_delivered(claimed))
            await recorder.drained()


async def _most_locks(uri: str) -> int:
    """The maximum number of locks until cancelled."""
    most = 0
    connection = await database.connect(uri, "pillarbox bench locks")
    try:
        while True:
            [row] = await database.fetch(connection, "bench_locks")
            most = max(most, row.locks)
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        return most
    finally:
        await connection.close()


def _delivered(claimed: Sequence[Claimed]) -> list[Result]:
    took = timedelta(milliseconds=120)
    return [Result(c, _DELIVERED, "192.0.2.25:25", took, "success", None) for c in claimed]
