"""sockets — the ports smtpd accepts on, bound before privileges are dropped

Owns: making listening sockets, one for each process on each address.
Guarantees: all or nothing: a port that cannot be bound closes the others and is one clear line. A port that another
    process serves already is refused, even if that is another smtpd, with which SO_REUSEPORT would share it.
    Each process has a socket of its own, so that the kernel spreads connections; they stay open here when a process
    dies, so that connections made meanwhile wait for the next one instead of being reset.
Raises: ListenFailed.
See: socket(7) SO_REUSEPORT, RFC 5321 section 4.5.4.2 (a connection that is refused is tried again much later).
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from shared import port_holder
from shared.errors import ListenFailed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.config.smtpd.settings import Listener, SmtpdConfig


class Bound(NamedTuple):
    """One listening socket and the listener it was made for, as servers[server].listeners[listener]."""

    server: int
    listener: int
    door: socket.socket


def bind(config: SmtpdConfig) -> list[list[Bound]]:
    """For each process its sockets, which listen already."""
    doors: list[list[Bound]] = [[] for _ in range(config.processes)]
    try:
        for index, server in enumerate(config.servers):
            for number, listener in enumerate(server.listeners):
                where = f"servers[{index}].listeners[{number}]: {listener.address}:{listener.port}"
                try:
                    for place in _places(listener):
                        for process, door in enumerate(opened(place, listener.backlog, len(doors))):
                            doors[process].append(Bound(index, number, door))
                except OSError as error:
                    said = port_holder.why(error, listener.address, listener.port)
                    raise ListenFailed(f"{where}: cannot listen: {said}") from None
    except BaseException:
        close(bound for process in doors for bound in process)
        raise
    return doors


def addresses(doors: Iterable[Bound]) -> str:
    """`address:port` of each socket, as bound."""
    names = (bound.door.getsockname() for bound in doors)
    return ", ".join(f"{name[0]}:{name[1]}" for name in names)


def close(doors: Iterable[Bound]) -> None:
    """Stop accepting there, as far as this process is concerned."""
    for bound in doors:
        bound.door.close()


type Place = tuple[socket.AddressFamily, tuple[str, int]]


def _places(listener: Listener) -> list[Place]:
    """Every address of a host name, once."""
    found = socket.getaddrinfo(listener.address, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, (str(address[0]), int(address[1]))) for family, _, _, _, address in found))


def opened(place: Place, backlog: int, count: int) -> list[socket.socket]:
    """So many sockets on one address; port 0 is the same free port for all of them."""
    family, address = place
    doors: list[socket.socket] = []
    try:
        if count > 1:
            # Without SO_REUSEPORT, so that a port in use is refused; and it finds a free one for all.
            with _bound(family, address, shared=False) as probe:
                address = (address[0], probe.getsockname()[1])
        for _ in range(count):
            door = _bound(family, address, shared=count > 1)
            doors.append(door)
            door.listen(backlog)
            door.setblocking(False)
    except BaseException:
        for door in doors:
            door.close()
        raise
    return doors


def _bound(family: socket.AddressFamily, address: tuple[str, int], *, shared: bool) -> socket.socket:
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family is socket.AF_INET6:
            door.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        with suppress(OSError):  # replies are small and written whole: none should wait for an ACK
            door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        door.bind(address)
    except BaseException:
        door.close()
        raise
    return door
