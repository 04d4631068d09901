"""rates-socket — the Unix socket at which smtpd counts for other daemons of this host

Owns: the socket `rates.sock` in environment.var, and the answers to its clients.
Guarantees: only the account of smtpd and its group may ask. The newest smtpd of a folder counts: it takes the name
    over, and an older one that ends leaves it alone. Without the socket smtpd serves as before. A daemon that goes
    takes its sessions with it, and one that says what cannot be read is cut off.
See: smtpd/rates/server.py; httpd/sending/rates.py, which asks.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Final

from shared.observe import events
from smtpd.process.channel import Channel
from smtpd.rates.server import answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from smtpd.rates.server import RateServer

NAME: Final = "rates.sock"
_LONGEST: Final = 1 << 16  # octets of a question
_MODE: Final = 0o660


@asynccontextmanager
async def answering(counts: RateServer, var: Path) -> AsyncIterator[None]:
    """Answer at the socket as long as the block lasts; where it cannot be made, an event says so."""
    numbers = count(1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        process = -next(numbers)  # those of children are positive
        channel = Channel(reader, writer)
        try:
            async for message in channel:
                if (found := answer(counts, process, message)) is not None:
                    channel.send(found)
                    await writer.drain()
        except (ValueError, TypeError, LookupError, OSError) as error:
            events.emit("rates.socket_failed", socket=str(var / NAME), error=repr(error))
        finally:
            counts.gone(process)
            channel.close()

    try:
        door, inode = _bound(var)
        server = await asyncio.start_unix_server(serve, sock=door, limit=_LONGEST)
    except OSError as error:
        events.emit("rates.socket_failed", socket=str(var / NAME), error=repr(error))
        yield
        return
    try:
        yield
    finally:
        server.close()
        with suppress(OSError):
            if (var / NAME).stat().st_ino == inode:
                (var / NAME).unlink()


def connect(var: Path) -> socket.socket:
    """A connection to the socket; OSError where none answers there."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(var) as folder:
            end.connect(f"{folder}/{NAME}")
        end.setblocking(False)
    except BaseException:
        end.close()
        raise
    return end


def _bound(var: Path) -> tuple[socket.socket, int]:
    """The socket, made under a name of its own and then put in the place of another smtpd's; and its inode."""
    var.mkdir(parents=True, exist_ok=True)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made = f"{NAME}.{os.getpid()}"
    try:
        (var / made).unlink(missing_ok=True)
        with _short(var) as folder:
            door.bind(f"{folder}/{made}")
        (var / made).chmod(_MODE)
        inode = (var / made).stat().st_ino
        door.listen()
        (var / made).rename(var / NAME)
        door.setblocking(False)
    except BaseException:
        door.close()
        raise
    return door, inode


@contextmanager
def _short(var: Path) -> Iterator[str]:
    """Another name of the folder, since that of a socket has at most 107 octets (unix(7))."""
    number = os.open(var, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
