"""way-to-sink — a proxy between a worker and its sink that makes the sink look hung, cut, mad or dead

Owns: WayToSink and its moods; which messages' last answers went through to the worker.
Guarantees: the octets of a worker reach the sink unchanged in every mood: only answers are changed, so that
    the sink has the mail that a peer would have.
    good: as it is. hang: answers vanish, connections stay. reset: the connection is cut at the next answer.
    garbage: octets that are not a reply replace the answers. after_dot: cut when the final dot is answered.
See: scripts/sink/behaviour.py, which scripts single recipients for good; a mood passes.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

type Mood = Literal["good", "hang", "reset", "garbage", "after_dot"]

_CHUNK: Final = 65536
_RECORDED: Final = re.compile(rb"250 2\.0\.0 OK recorded as (\d+)\r\n")


class WayToSink:
    """A relay on a port of its own."""

    def __init__(self, port: int) -> None:
        """`port`: the sink's."""
        self._target = port
        self.port = 0
        self.mood: Mood = "good"
        self.spoilt = 0  # answers that were tampered with
        self.answered: set[int] = set()  # the sink's numbers of the messages whose last answer the worker was sent
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """End every connection."""
        _cut(tuple(self._open))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection until either side ends it."""
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = (writer, back)
        self._open.update(ends)
        with suppress(OSError):
            await asyncio.gather(self._ask(reader, back, ends), self._answer(there, writer, ends))
        _cut(ends)
        self._open.difference_update(ends)

    async def _ask(
        self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, ends: tuple[asyncio.StreamWriter, ...]
    ) -> None:
        with suppress(OSError):
            while octets := await reader.read(_CHUNK):
                back.write(octets)
                await back.drain()
        _cut(ends)

    async def _answer(
        self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, ends: tuple[asyncio.StreamWriter, ...]
    ) -> None:
        with suppress(OSError):
            while octets := await there.read(_CHUNK):
                passed = self._tampered(octets)
                if passed is None:
                    break
                writer.write(passed)
                await writer.drain()
        _cut(ends)

    def _tampered(self, octets: bytes) -> bytes | None:
        """The octets sent instead; None when the connection is to be cut."""
        recorded = [int(number) for number in _RECORDED.findall(octets)]  # the sink writes each reply at once
        if self.mood == "good" or (self.mood == "after_dot" and not recorded):
            self.answered.update(recorded)
            return octets
        self.spoilt += 1
        if self.mood == "hang":
            return b""
        return b"\x00\xfe 2zz what?\r\n\r\n" if self.mood == "garbage" else None


def _cut(ends: tuple[asyncio.StreamWriter, ...]) -> None:
    for end in ends:
        end.transport.abort()


@asynccontextmanager
async def leading_to(port: int) -> AsyncIterator[WayToSink]:
    """A way that leads to the sink on `port` as long as the block."""
    way = WayToSink(port)
    server = await asyncio.start_server(way.serve, "127.0.0.1", 0)
    way.port = server.sockets[0].getsockname()[1]
    try:
        yield way
    finally:
        server.close()
        way.cut()
        await server.wait_closed()
