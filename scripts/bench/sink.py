"""sink — the smtp-sink that receives the mail of a benchmark

Owns: its process, and finding a free port for programs that need one given.
Raises: PillarboxError when smtp-sink is missing.
See: smtp-sink(1).
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from scripts.dev.peers import need_peer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def sink() -> AsyncIterator[int]:
    """An smtp-sink for the block; the port it listens on."""
    port = free_port()
    unprivileged = ("-u", "nobody") if os.geteuid() == 0 else ()  # it refuses to serve as root
    running = await asyncio.create_subprocess_exec(need_peer("smtp-sink"), *unprivileged, f"127.0.0.1:{port}", "1000")
    try:
        yield port
    finally:
        running.terminate()
        await running.wait()


def free_port() -> int:
    """A free port of 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
    return port
