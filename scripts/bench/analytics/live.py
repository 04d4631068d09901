"""live — measures a live queue: messages per second, and the time from a message's 250 to its peer's acknowledgement

Owns: the daemons with their default configuration on the run's own PostgreSQL, clients that submit over SMTP, and a
    next hop that answers at once.
Guarantees: clients and next hop are in one process and read one clock. Mail has a fixed schedule, a share of what the
    quiet system did in the same run, so a slow system cannot hide behind being sent less. A measurement counts only if
    every message that was accepted was also delivered.
Raises: PillarboxError when a message was refused or not delivered.
See: scripts/bench/flow/ours.py, the daemons.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Final

from scripts.bench.book import percentiles
from scripts.bench.core.server import content
from scripts.bench.flow.ours import running
from scripts.bench.smtpd.load import RECIPIENT, connected
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from scripts.bench.flow.ours import Ours

SHARE: Final = 0.7  # of the quiet system's rate
_SESSIONS: Final = 20
_SIZE: Final = 4096
_MARK: Final = b"X-Bench: "
_PATIENCE: Final = 300.0  # seconds until the last message must be delivered
_REPLIES: Final = {b"DATA": b"354 go on\r\n", b"QUIT": b"221 bye\r\n"}


@dataclass(frozen=True, slots=True)
class Look:
    """One measurement: the seconds of each delivery, sorted, and how long the measurement lasted."""

    took: tuple[float, ...]
    lasted: float

    @property
    def rate(self) -> float:
        """Deliveries per second."""
        return len(self.took) / self.lasted

    @property
    def p99(self) -> float:
        """Milliseconds from 250 to the acknowledgement of the slowest of a hundred."""
        return percentiles(self.took)["p99"]

    def __str__(self) -> str:
        found = percentiles(self.took)
        return f"{self.rate:.0f} deliveries/s, p50 {found['p50']:.1f} ms, p99 {found['p99']:.1f} ms"


def together(looks: Iterable[Look]) -> Look:
    """Several measurements as one."""
    each = list(looks)
    return Look(tuple(sorted(s for look in each for s in look.took)), sum(look.lasted for look in each))


@dataclass
class Mail:
    """The clients and the next hop: when each message was accepted, and when its peer acknowledged it."""

    port: int = 0
    accepted: dict[int, float] = field(default_factory=dict)
    acknowledged: dict[int, float] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=count)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a worker."""
        writer.write(b"220 sink.pillarbox.example ESMTP\r\n")
        while line := await reader.readline():
            verb = line[:4].upper()
            writer.write(_REPLIES.get(verb, b"250 ok\r\n"))
            if verb == b"DATA":
                text = await reader.readuntil(b"\r\n.\r\n")
                number = int(text[text.index(_MARK) + len(_MARK) :].split(b"\r\n", 1)[0])
                writer.write(b"250 taken\r\n")
                self.acknowledged[number] = perf_counter()
            elif verb == b"QUIT":
                break
        writer.close()

    async def submit(self, port: int, due: asyncio.Queue[float | None]) -> None:
        """One session: submits a message at each moment that is due, until None."""
        body = content(_SIZE) + b".\r\n"
        async with connected(port) as peer:
            while (moment := await due.get()) is not None:
                await asyncio.sleep(max(0.0, moment - perf_counter()))
                number = next(self.numbers)
                self.accepted[number] = await peer.submit(RECIPIENT, _MARK + str(number).encode() + b"\r\n" + body)

    async def run(self, port: int, moments: list[float]) -> Look:
        """Submit a message at each of these moments, and wait until all are delivered."""
        self.accepted.clear()
        self.acknowledged.clear()
        due: asyncio.Queue[float | None] = asyncio.Queue()
        for moment in (*moments, *[None] * _SESSIONS):
            due.put_nowait(moment)
        begun = perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(_SESSIONS):
                group.create_task(self.submit(port, due))
        while len(self.acknowledged) < len(moments):
            if perf_counter() - begun > moments[-1] - moments[0] + _PATIENCE:
                raise PillarboxError(f"{len(self.acknowledged)} of {len(moments)} messages were delivered")
            await asyncio.sleep(0.01)
        took = [max(0.0, self.acknowledged[number] - at) for number, at in self.accepted.items()]
        return Look(tuple(sorted(took)), max(self.acknowledged.values()) - begun)


@asynccontextmanager
async def flowing(var: Path) -> AsyncIterator[tuple[Ours, Mail]]:
    """The daemons for the block, on the server under `var`; all mail goes to a next hop that answers at once."""
    mail = Mail()
    server = await asyncio.start_server(mail.serve, "127.0.0.1", 0, limit=1 << 20)
    try:
        async with running(var, server.sockets[0].getsockname()[1], {}) as ours:
            await look(ours, mail, 100.0, 3.0)  # warms up
            yield ours, mail
    finally:
        server.close()


async def capacity(ours: Ours, mail: Mail, messages: int) -> Look:
    """The quiet system at its limit: so many messages, submitted as fast as they are taken."""
    return await mail.run(ours.port, [perf_counter()] * messages)


async def look(ours: Ours, mail: Mail, pace: float, seconds: float) -> Look:
    """Submit at this pace for `seconds`, and measure the delivery of each message."""
    begun = perf_counter() + 0.05
    return await mail.run(ours.port, [begun + number / pace for number in range(max(1, int(seconds * pace)))])
