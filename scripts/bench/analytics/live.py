"""live — measures a live queue: deliveries per second and the time each takes

Owns: the daemons with their default configuration on the run's own PostgreSQL, a next hop as slow as one across the
    Internet, and mail queued at a steady pace.
Guarantees: mail has a fixed schedule. A delivery is timed from its scheduled moment to its row in `archive`, by
    PostgreSQL's clock, so a slow system cannot hide behind queueing less. A measurement counts only if everything it
    queued was delivered.
Raises: PillarboxError when a message was not delivered.
See: scripts/bench/flow/ours.py, the daemons; scripts/bench/flow/latency.py, the next hop.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final

from scripts.bench.book import percentiles
from scripts.bench.flow.latency import next_hop
from scripts.bench.flow.ours import running
from shared.errors import PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from scripts.bench.flow.ours import Ours

PACE: Final = 20.0  # times a second that mail is queued
BATCH: Final = 25  # messages each time, of 1 KB for one recipient: 500 deliveries a second, 43 million a day
ANSWER: Final = 0.05  # seconds from the end of a message to its 250


@dataclass(frozen=True, slots=True)
class Look:
    """One measurement: the seconds of each delivery, sorted, and how long the measurement lasted."""

    took: tuple[float, ...]
    lasted: float

    @property
    def rate(self) -> float:
        """Deliveries per second."""
        return len(self.took) / self.lasted

    def __str__(self) -> str:
        found = percentiles(self.took)
        return f"{self.rate:.0f} deliveries/s, p50 {found['p50']:.1f} ms, p99 {found['p99']:.1f} ms"


def together(looks: Iterable[Look]) -> Look:
    """Several measurements as one."""
    each = list(looks)
    return Look(tuple(sorted(s for look in each for s in look.took)), sum(look.lasted for look in each))


@asynccontextmanager
async def flowing(var: Path) -> AsyncIterator[Ours]:
    """The daemons for the block, on the server under `var`; all mail goes to a next hop with a delayed reply."""
    async with next_hop(answer=ANSWER) as hop, running(var, hop.port, {}) as ours:
        await look(ours, 2.0)  # warms up
        yield ours


async def look(ours: Ours, seconds: float) -> Look:
    """Queue mail at the pace for `seconds` and measure its delivery."""
    [since] = await database.fetch(ours.connection, "bench_now")
    begun, rounds = monotonic(), int(seconds * PACE)
    for number in range(rounds):
        await asyncio.sleep(max(0.0, begun + number / PACE - monotonic()))
        await ours.queue(BATCH, 1024)
    await ours.idle()
    rows = sorted(await database.fetch(ours.connection, "bench_delivered", since=since.now))
    if len(rows) != rounds * BATCH:
        raise PillarboxError(f"the live queue delivered {len(rows)} of {rounds * BATCH} messages")
    due = [since.now + timedelta(seconds=place // BATCH / PACE) for place in range(len(rows))]
    took = sorted((row.finished - then).total_seconds() for row, then in zip(rows, due, strict=True))
    return Look(tuple(took), (max(row.finished for row in rows) - since.now).total_seconds())
