"""channel — messages between the supervisor and one of its children

Owns: one JSON document on one line each way over a socket pair.
Guarantees: a message arrives whole or not at all; the end of the other process is the end of the messages. Nothing here
    waits for the other side to read: messages are small and few, but for the configuration.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Mapping

_LONGEST = 64 * 2**20  # octets of a configuration; shared.config.yaml_source reads files up to a quarter of it


class Channel:
    """One end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """A channel over one end of a socket pair, which it closes in the end."""
        return cls(*await asyncio.open_unix_connection(sock=end, limit=_LONGEST))

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message; it is lost if the other end is closed."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when the other side is gone."""
        try:
            line = await self._reader.readline()
        except OSError:
            return None
        found: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return found

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Messages, to the end."""
        while (message := await self.receive()) is not None:
            yield message

    def close(self) -> None:
        """Nothing more is said or heard."""
        self._writer.close()
