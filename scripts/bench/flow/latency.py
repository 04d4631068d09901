"""latency — measures an idle system's time from the commit of a message to its first octet at the next hop

Owns: a next hop that records when MAIL arrives, and a client that sends one message at a time to an idle system.
Guarantees: both are in one process and read one clock. The time runs from smtpd's 250, which follows COMMIT, to MAIL
    at the next hop. It includes opening a connection, because the worker keeps none from the message before.
See: RFC 5321 section 4.1.1.4 (what 250 means); docs/explanation/benchmarks-flow.md.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final

from scripts.bench.core.server import content
from scripts.bench.smtpd.load import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PATIENCE: Final = 30.0  # seconds that a message may take
_SILENCE: Final = 0.05  # seconds after which the system is idle again
_SIZE: Final = 4096
_REPLIES: Final = {b"DATA": b"354 go on\r\n", b"QUIT": b"221 bye\r\n"}


@dataclass(slots=True)
class NextHop:
    """The time of the last MAIL, and whether its message is complete; `answer` delays the final 250, in seconds."""

    answer: float = 0.0
    port: int = 0
    began: float = 0.0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        writer.write(b"220 sink.pillarbox.example ESMTP\r\n")
        while line := await reader.readline():
            now = perf_counter()
            verb = line[:4].upper()
            if verb == b"MAIL":
                self.began = now
            writer.write(_REPLIES.get(verb, b"250 ok\r\n"))
            if verb == b"DATA":
                await reader.readuntil(b"\r\n.\r\n")
                await asyncio.sleep(self.answer)
                writer.write(b"250 taken\r\n")
                self.done.set()
            elif verb == b"QUIT":
                break
        writer.close()


@asynccontextmanager
async def next_hop(answer: float = 0.0) -> AsyncIterator[NextHop]:
    """A next hop on a free port, for the block."""
    hop = NextHop(answer)
    server = await asyncio.start_server(hop.serve, "127.0.0.1", 0)
    hop.port = server.sockets[0].getsockname()[1]
    try:
        yield hop
    finally:
        server.close()


async def first_octets(port: int, hop: NextHop, messages: int, recipients: tuple[str, ...]) -> list[float]:
    """Seconds from 250 to MAIL of each message, sorted; 0 if MAIL came first. The recipients rotate."""
    text = content(_SIZE) + b".\r\n"
    seconds: list[float] = []
    async with connected(port) as peer:
        for number in range(messages + 1):
            hop.done.clear()
            heard = await peer.submit(recipients[number % len(recipients)], text)
            await asyncio.wait_for(hop.done.wait(), _PATIENCE)
            if number:  # the first one warms up
                seconds.append(max(0.0, hop.began - heard))
            await asyncio.sleep(_SILENCE)
    return sorted(seconds)
