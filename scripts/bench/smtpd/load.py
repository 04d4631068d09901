"""load — the clients of a run: Postfix's smtp-source for rates, our own client for the time of each reply

Owns: one measured burst of messages to one port.
Guarantees: a burst counts only if every message was answered 250.
Raises: PillarboxError otherwise.
See: smtp-source(1), which does not report single replies; hence the second client. Like smtp-source, it waits for each
    reply before the next command. Its own work on the same machine is part of the measured time.
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
    from collections.abc import AsyncIterator, Sequence

RECIPIENT: Final = f"sink@{DOMAINS[0]}"
_PATIENCE: Final = 300.0  # seconds that a burst may take


@dataclass(frozen=True, slots=True)
class Burst:
    """A number of messages of `size` octets over `sessions` sessions; `reuse`: several messages in a session."""

    messages: int
    size: int
    sessions: int
    reuse: bool = True


async def rate(port: int, burst: Burst) -> float:
    """Accepted messages per second, submitted by smtp-source."""
    began = monotonic()
    counts = ("-s", str(burst.sessions), "-m", str(burst.messages), "-l", str(burst.size))
    await submit(port, DOMAINS[0], *(("-d",) if burst.reuse else ()), *counts)
    return burst.messages / (monotonic() - began)


async def final_replies(port: int, burst: Burst) -> list[float]:
    """Seconds from each message's final dot to its reply, sorted; connections are reused."""
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


async def paced(
    port: int, recipients: Sequence[str], rate: float, sessions: int, text: bytes
) -> tuple[dict[str, float], float]:
    """A message to each of these at `rate` a second: when each was answered 250, and the seconds that all took."""
    accepted: dict[str, float] = {}
    slots: asyncio.Queue[str | None] = asyncio.Queue()

    async def session() -> None:
        async with connected(port) as peer:
            while (recipient := await slots.get()) is not None:
                accepted[recipient] = await peer.submit(recipient, text)

    async with asyncio.TaskGroup() as group:
        for _ in range(sessions):
            group.create_task(session())
        began = perf_counter()
        for number, recipient in enumerate(recipients):
            await asyncio.sleep(max(0.0, began + number / rate - perf_counter()))
            slots.put_nowait(recipient)
        for _ in range(sessions):
            slots.put_nowait(None)
    return accepted, perf_counter() - began


def raise_open_files() -> None:
    """Raise the limit of open files to its maximum: each session needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@dataclass(slots=True)
class Peer:
    """One connection; each command waits for the reply to the last."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    said: str = ""

    async def say(self, command: str, *wanted: int) -> int:
        """Send a command; the code of its reply, which must be one of `wanted`."""
        self.writer.write(command.encode() + b"\r\n")
        self.said = command
        return await self.hear(*wanted)

    async def hear(self, *wanted: int) -> int:
        """The code of the next reply, which must be one of `wanted`."""
        while (line := await self.reader.readline())[3:4] == b"-":
            pass
        code = int(line[:3]) if line[:3].isdigit() else 0
        if code not in wanted:
            allowed = " or ".join(map(str, wanted))
            raise PillarboxError(f"{self.said or 'connection'}: the reply is {line!r}; allowed: {allowed}")
        return code

    async def submit(self, recipient: str, text: bytes) -> float:
        """A message from SENDER, `text` with its final dot; the moment of its 250, as perf_counter has it."""
        await self.say(f"MAIL FROM:<{SENDER}>", 250)
        await self.say(f"RCPT TO:<{recipient}>", 250)
        await self.say("DATA", 354)
        self.writer.write(text)
        await self.hear(250)
        return perf_counter()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Peer]:
    """A connection for the block, after EHLO."""
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
    try:
        await peer.hear(220)
        await peer.say("EHLO source.pillarbox.example", 250)
        yield peer
    finally:
        peer.writer.close()
