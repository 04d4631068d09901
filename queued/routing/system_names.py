"""system_names — the addresses of hosts that queued.yaml names, by the system's resolver: /etc/hosts, then DNS

Guarantees: a name is looked up by one thread at a time, of _THREADS of our own: the event loop's few shared threads
    never wait for a name. An answer is kept for _FRESH seconds; while a new one is on its way the old one is used for
    _STALE, so that a slow name server does not delay names that were known. A failure is kept for _FRESH.
Raises: OSError when the system has no address; it is the same for all that wait for it.
See: getaddrinfo(3); RFC 8767 (expired answers).
Bugs: getaddrinfo cannot be interrupted: a thread ends when the system has given up. Threads do not delay our exit.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from dataclasses import dataclass
from ipaddress import ip_address
from time import monotonic
from typing import Final

from shared.outcome import outcome_of

_THREADS: Final = 16
_FRESH, _STALE = 5.0, 300.0  # seconds
_MOST: Final = 10_000  # names; as many as queued.yaml may have routes


@dataclass(frozen=True, slots=True)
class _Known:
    at: float
    addresses: tuple[str, ...] = ()
    failure: tuple[object, ...] = ()  # the arguments of the OSError


class SystemNames:
    """Names and what is known of them."""

    def __init__(self, threads: int = _THREADS) -> None:
        self._room = threading.BoundedSemaphore(threads)
        self._known: dict[str, _Known] = {}
        self._asking: dict[str, asyncio.Future[_Known]] = {}

    async def addresses(self, host: str) -> tuple[str, ...]:
        """The addresses of a host, best first; an address is its own."""
        if is_address(host):
            return (host,)
        known, now = self._known.get(host), monotonic()
        if known is None or now > known.at + _FRESH:
            asking = self._ask(host)
            if known is None or known.failure or now > known.at + _STALE:
                known = await outcome_of(asking)
        if known.failure:
            raise OSError(*known.failure)
        return known.addresses

    def _ask(self, host: str) -> asyncio.Future[_Known]:
        """The answer of a thread that asks now."""
        loop = asyncio.get_running_loop()
        asking = self._asking.get(host)
        if asking is not None and asking.get_loop() is loop and not asking.done():
            return asking
        asking = self._asking[host] = loop.create_future()

        def answered(known: _Known) -> None:
            if self._asking.get(host) is asking:
                del self._asking[host]
            if len(self._known) >= _MOST:
                self._known.clear()
            before = self._known.get(host)
            if not known.failure or before is None or before.failure or known.at > before.at + _STALE:
                self._known[host] = known
            if not asking.done():
                asking.set_result(known)

        def ask() -> None:
            with self._room:
                known = _look_up(host)
            if not loop.is_closed():
                loop.call_soon_threadsafe(answered, known)

        threading.Thread(target=ask, name=f"name {host}", daemon=True).start()
        return asking


def _look_up(host: str) -> _Known:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return _Known(monotonic(), failure=error.args if isinstance(error, OSError) else (0, str(error)))
    return _Known(monotonic(), tuple(dict.fromkeys(str(place[0]) for *_, place in found)))


def is_address(host: str) -> bool:
    """Whether it is an IP address and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


#: Names are the system's, not a worker's: one memory for the process.
NAMES: Final = SystemNames()
