"""bench_live — a live queue beside the analytics: how many deliveries a second, and how long each batch takes

Owns: one worker's real claims and results at a steady pace, for a given time; a peer's answer is made up.
Called by: scripts.analytics.bench, as a process of its own: `python -m scripts.analytics.bench_live URI SECONDS`.
Guarantees: batches are due on a clock, and a batch that is late is timed from when it was due, so that a slow stretch
    is not hidden by asking less. Prints one JSON object: deliveries_s, p50_ms, p99_ms, and offered, the pace.
See: scripts/bench_core_worker.py, whose worker this is.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from time import monotonic
from typing import Final

from queued.claim import Claimer
from queued.result import Recorder, Result
from scripts.bench_book import percentiles
from shared import database
from shared.outcome import Outcome
from shared.queued_config import Claim

PACE: Final = 20.0  # batches a second
BATCH: Final = 25  # recipients in each, so 500 deliveries a second: what 25 SMTP sessions of 50 ms deliver
_ACCEPTED: Final = Outcome("delivered", "recipient", 250, "2.0.0", "250 2.0.0 Ok: queued")


async def run(uri: str, seconds: float) -> dict[str, float]:
    """Claim and settle at the pace for so long; the queue must hold enough that is due."""
    pool = await database.open_pool(uri, "pillarbox bench worker", 2)
    recorder = Recorder(pool, "bench", ahead=1)
    recording = asyncio.create_task(recorder.run())
    claimer = Claimer("true", "bench", Claim(batch=BATCH))
    took: list[float] = []
    done = 0
    try:
        async with pool.connection() as connection:
            begun = monotonic()
            for number in range(int(seconds * PACE)):
                due = begun + number / PACE
                await asyncio.sleep(max(0.0, due - monotonic()))
                claimed = await claimer.take(connection, BATCH)
                peer, spent = "192.0.2.25:25", timedelta(milliseconds=50)
                recorder.add([Result(each, _ACCEPTED, peer, spent, "success", None) for each in claimed])
                await recorder.drained()
                done += len(claimed)
                took.append(monotonic() - due)
            lasted = monotonic() - begun
    finally:
        recording.cancel()
        await asyncio.wait([recording])
        await pool.close()
    found = percentiles(sorted(took))
    return {"deliveries_s": done / lasted, "p50_ms": found["p50"], "p99_ms": found["p99"], "offered": PACE * BATCH}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1], float(sys.argv[2])))), flush=True)
