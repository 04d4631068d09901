"""worker — `python -m scripts.bench.core.worker KIND URI BATCH WHERE`: drains a queue as fast as it can

Owns: one consumer process: prints `ready`, waits for a line, drains, and prints the number of rows as a line of JSON.
Guarantees: KIND `pillarbox` is the real queued.claiming.claim.Claimer and queued.result.Recorder, without the SMTP
    between them; `bodies` also reads each body, as a delivery does; `pgmq` is pgmq.read, which returns the message, and
    pgmq.archive. Each has two connections and takes the next batch while the last is recorded or archived.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from queued.claiming.claim import Claimer
from queued.result import Recorder
from queued.values import Result
from shared.config.queued.settings import Claim
from shared.mail.outcome import Outcome
from shared.postgres import database

if TYPE_CHECKING:
    from queued.values import Claimed

_TOOK = timedelta(milliseconds=120)


async def drain_pillarbox(uri: str, batch: int, where: str, *, bodies: bool) -> int:
    """Claim and record as delivered until nothing is due."""
    pool = await database.open_pool(uri, "pillarbox bench worker", 2, in_order=True)
    recorder = Recorder(pool, "bench", ahead=1)
    recording = asyncio.create_task(recorder.run())
    claimer = Claimer(where, "bench", Claim(batch=batch))
    drained = 0
    try:
        async with pool.connection() as connection:
            await _started()
            while claimed := await claimer.take(connection, batch):
                if bodies:
                    await database.fetch(connection, "message_bodies", ids=list({c.message_id for c in claimed}))
                # As in queued.dispatch, the next claim waits for the results before the last ones, not for the last.
                if recorder.unrecorded > batch:
                    await recorder.drained()
                recorder.add([_delivered(c) for c in claimed])
                drained += len(claimed)
            await recorder.drained()
    finally:
        recording.cancel()
        await asyncio.wait([recording])
        await pool.close()
    return drained


async def drain_pgmq(uri: str, batch: int) -> int:
    """Read and archive until no message is visible; the next batch is read while the last is archived, as in ours."""
    reading, archiving = [await database.connect(uri, "pgmq bench worker") for _ in range(2)]
    drained = 0
    last: asyncio.Task[list[database.Row]] | None = None
    try:
        await _started()
        while rows := await database.fetch(reading, "bench_pgmq_read", batch=batch):
            drained += len(await last) if last else 0
            ids = [row.msg_id for row in rows]
            last = asyncio.create_task(database.fetch(archiving, "bench_pgmq_archive", ids=ids))
        drained += len(await last) if last else 0
    finally:
        await reading.close()
        await archiving.close()
    return drained


def _delivered(c: Claimed) -> Result:
    """A peer's reply; its text differs for each message, as queue ids do."""
    accepted = Outcome("delivered", "recipient", 250, "2.0.0", f"250 2.0.0 Ok: queued as {c.id:X}")
    return Result(c, accepted, "192.0.2.25:25", _TOOK, "success", None)


async def _started() -> None:
    """Print `ready` and wait for the start signal."""
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def _drain(kind: str, uri: str, batch: int, where: str) -> int:
    if kind == "pgmq":
        return await drain_pgmq(uri, batch)
    return await drain_pillarbox(uri, batch, where, bodies=kind == "bodies")


def main() -> None:
    """Drain; print the number of rows and the end time (CLOCK_MONOTONIC, which all processes share)."""
    kind, uri, batch, where = sys.argv[1:]
    rows = asyncio.run(_drain(kind, uri, int(batch), where))
    print(json.dumps({"rows": rows, "ended": monotonic()}), flush=True)


if __name__ == "__main__":
    main()
