"""door — the one socket that httpd listens on

Raises: ListenFailed when the address cannot be bound.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from shared import port_holder
from shared.errors import ListenFailed

if TYPE_CHECKING:
    from shared.config.metrics import ListenAddress

_BACKLOG: Final = 1024


def bind(listen: ListenAddress) -> socket.socket:
    """The socket, which listens already."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenFailed(f"listen: {listen}: cannot listen: {error.strerror or error}") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        with suppress(OSError):  # answers are small and written whole: none should wait for an ACK
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.bind(place)
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        said = port_holder.why(error, listen.host, listen.port)
        raise ListenFailed(f"listen: {listen}: cannot listen: {said}") from None
    made.setblocking(False)
    return made


def address(bound: socket.socket) -> str:
    """`address:port` as bound."""
    name = bound.getsockname()
    return f"[{name[0]}]:{name[1]}" if ":" in str(name[0]) else f"{name[0]}:{name[1]}"
