"""load — the clients of a run, in the benchmark's own process, which is not measured

Owns: one measured burst of messages to one port, by SMTP or by HTTP, over connections that are kept.
Guarantees: a burst counts only if every message was accepted. Each session waits for its answer before it sends the
    next message; by SMTP it waits for each reply, as smtp-source does, unless the commands go out at once.
Raises: PillarboxError otherwise.
See: RFC 2920 (several commands at once).
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final

from scripts.bench.smtpd.load import RECIPIENT, connected, raise_open_files
from scripts.bench.source import SENDER
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from scripts.bench.http.request import Form

_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_LINE: Final = re.compile(rb"HTTP/1\.1 202 ")
_PATIENCE: Final = 300.0  # seconds that a burst may take
_COMMANDS: Final = f"MAIL FROM:<{SENDER}>\r\nRCPT TO:<{RECIPIENT}>\r\nDATA\r\n".encode()


@dataclass(frozen=True, slots=True)
class Burst:
    """A number of messages over `sessions` connections."""

    messages: int
    sessions: int


async def by_smtp(port: int, burst: Burst, text: bytes, *, at_once: bool) -> float:
    """Accepted messages per second; at_once: MAIL, RCPT and DATA in one write."""
    left = iter(range(burst.messages))
    content = text + b".\r\n"  # hexadecimal digits: no line begins with a dot

    async def session() -> None:
        async with connected(port) as peer:
            for _ in left:
                if at_once:
                    peer.writer.write(_COMMANDS)
                    for code in (250, 250, 354):
                        await peer.hear(code)
                else:
                    await peer.say(f"MAIL FROM:<{SENDER}>", 250)
                    await peer.say(f"RCPT TO:<{RECIPIENT}>", 250)
                    await peer.say("DATA", 354)
                peer.writer.write(content)
                await peer.hear(250)

    return await _rate(burst, session)


async def by_http(port: int, burst: Burst, key: str, form: Form) -> float:
    """Accepted messages per second."""
    left = iter(range(burst.messages // form.messages))
    octets = form.octets(key)

    async def session() -> None:
        async with opened(port) as ask:
            for _ in left:
                await ask(octets)

    return await _rate(burst, session)


async def paced(port: int, burst: Burst, key: str, form: Form, rate: float) -> list[float]:
    """Seconds from the time when each request was due to its answer, sorted, at this rate."""
    octets = form.octets(key)
    numbers = iter(range(burst.messages))
    seconds: list[float] = []
    began = perf_counter()

    async def session() -> None:
        async with opened(port) as ask:
            for number in numbers:
                due = began + number / rate
                await asyncio.sleep(due - perf_counter())
                await ask(octets)
                seconds.append(perf_counter() - due)

    await _rate(burst, session)
    return sorted(seconds)


@asynccontextmanager
async def opened(port: int) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
    """A connection for the block: sends a request, and returns when its answer is read, which must be 202."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(octets: bytes) -> None:
        writer.write(octets)
        head = await reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(head)
        answer = await reader.readexactly(int(found[1]) if found else 0)
        if not _LINE.match(head):
            raise PillarboxError(f"httpd: the answer is {head.splitlines()[0]!r} {answer[:300]!r}; allowed: 202")

    try:
        yield ask
    finally:
        writer.close()


async def _rate(burst: Burst, session: Callable[[], Awaitable[None]]) -> float:
    raise_open_files()
    began = perf_counter()
    async with asyncio.timeout(_PATIENCE):
        await asyncio.gather(*(session() for _ in range(burst.sessions)))
    return burst.messages / (perf_counter() - began)
