"""load — the clients of a run: Postfix's smtp-source for rates, one of our own for each reply's time

Owns: one measured burst of messages against one port.
Guarantees: a burst counts only when every one of its messages was answered 250.
Raises: PillarboxError otherwise.
See: smtp-source(1), which tells nothing about a single reply; hence the second client. It sends no command before the
    reply to the last one, as smtp-source does, and its own work on the same machine is part of what it measures.
"""

from __future__ import annotations

import asyncio
import resource
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Final

from scripts.bench.core.server import content
from scripts.bench.source import DOMAINS, SENDER, submit
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

RECIPIENT: Final = f"sink@{DOMAINS[0]}"
_PATIENCE: Final = 300.0  # seconds a burst may take


@dataclass(frozen=True, slots=True)
class Burst:
    """How many messages of how many octets, over how many sessions; `reuse`: more than one message in each."""

    messages: int
    size: int
    sessions: int
    reuse: bool = True


async def rate(port: int, burst: Burst) -> float:
    """Accepted messages per second, as smtp-source submits them."""
    began = monotonic()
    counts = ("-s", str(burst.sessions), "-m", str(burst.messages), "-l", str(burst.size))
    await submit(port, DOMAINS[0], *(("-d",) if burst.reuse else ()), *counts)
    return burst.messages / (monotonic() - began)


async def final_replies(port: int, burst: Burst) -> list[float]:
    """Seconds from the final dot to its reply, of each message, sorted; connections are reused."""
    raise_open_files()
    left = iter(range(burst.messages))
    seconds: list[float] = []
    text = content(burst.size) + b".\r\n"  # hexadecimal digits: no line begins with a dot

    async def session() -> None:
        async with connected(port) as peer:
            for _ in left:
                await peer.say(f"MAIL FROM:<{SENDER}>", 250)
                await peer.say(f"RCPT TO:<{RECIPIENT}>", 250)
                await peer.say("DATA", 354)
                peer.writer.write(text)
                await peer.writer.drain()
                began = perf_counter()
                await peer.hear(250)
                seconds.append(perf_counter() - began)

    async with asyncio.timeout(_PATIENCE), asyncio.TaskGroup() as group:
        for _ in range(burst.sessions):
            group.create_task(session())
    return sorted(seconds)


def raise_open_files() -> None:
    """As many open files as this process may have: a session is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@dataclass(slots=True)
class Peer:
    """One connection, spoken in lock step."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    said: str = ""

    async def say(self, command: str, *wanted: int) -> int:
        """One command; the code of its reply, which must be one of those."""
        self.writer.write(command.encode() + b"\r\n")
        self.said = command
        return await self.hear(*wanted)

    async def hear(self, *wanted: int) -> int:
        """The code of the next reply, which must be one of those."""
        while (line := await self.reader.readline())[3:4] == b"-":
            pass
        code = int(line[:3]) if line[:3].isdigit() else 0
        if code not in wanted:
            raise PillarboxError(f"{self.said or 'connection'}: answered {line!r}, not {wanted}")
        return code


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Peer]:
    """A connection that has said EHLO; it ends with the block."""
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
    try:
        await peer.hear(220)
        await peer.say("EHLO source.pillarbox.example", 250)
        yield peer
    finally:
        peer.writer.close()
