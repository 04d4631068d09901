"""door — the sockets that httpd listens on, one for each process, all on one address

Guarantees: as smtpd's (smtpd/connection/sockets.py): a port that another process serves already is refused, and what
    connects while a process is dead waits for the next one.
Raises: ListenFailed when the address cannot be bound.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from shared import port_holder
from shared.errors import ListenFailed
from smtpd.connection import sockets
from smtpd.connection.sockets import Bound

if TYPE_CHECKING:
    from shared.config.metrics import ListenAddress

_BACKLOG: Final = 1024


def bind(listen: ListenAddress, processes: int) -> list[list[Bound]]:
    """For each process its socket, which listens already."""
    try:
        family, _, _, _, place = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ListenFailed(f"listen: {listen}: cannot listen: {error.strerror or error}") from None
    try:
        doors = sockets.opened((family, (str(place[0]), int(place[1]))), _BACKLOG, processes)
    except OSError as error:
        said = port_holder.why(error, listen.host, listen.port)
        raise ListenFailed(f"listen: {listen}: cannot listen: {said}") from None
    return [[Bound(0, 0, each)] for each in doors]


def address(bound: socket.socket) -> str:
    """`address:port` as bound."""
    name = bound.getsockname()
    return f"[{name[0]}]:{name[1]}" if ":" in str(name[0]) else f"{name[0]}:{name[1]}"
