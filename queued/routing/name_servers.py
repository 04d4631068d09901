"""name_servers — the name servers that are asked, and in which order

Owns: the list: that of the configuration, or the system's; how often each has not answered since it last did.
Guarantees: the order is the configured one while all answer. A name server that does not answer goes behind those that
    do, until it answers again; every _AGAIN seconds one question asks it first, to learn that. So a dead name server
    delays one question in a while, not every one; c-ares does the same (ares_init_options(3),
    ARES_OPT_SERVER_FAILOVER). The system's list is read again once its file has changed, as glibc does
    (resolv.conf(5)). A question that asks a server again waits twice as long as before, as in c-ares, so that one whose
    answers take longer than PER_SERVER is heard; while all are silent, the first try is longer than a question has a
    place (queued/routing/resolver.py), so that those that end then are not sent twice.
Raises: dns.resolver.NoResolverConfiguration, or ValueError, where the system names none that can be read and never did.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import dns.exception
import dns.message
import dns.nameserver
import dns.resolver

from shared.config.queued.routing import HostPort

if TYPE_CHECKING:
    from collections.abc import Sequence

PER_SERVER: Final = 0.7  # seconds until the next name server is asked, or the only one for the second time
_SILENT: Final = 10  # tries in a row without an answer
_AGAIN: Final = 5.0  # seconds, as c-ares has it
_DNS_PORT: Final = 53  # RFC 1035 section 4.2
_SYSTEM: Final = Path("/etc/resolv.conf")


@dataclass(eq=False, slots=True)
class NameServer:
    """One of them."""

    place: HostPort  # as in routing.dns.servers, with the port
    unanswered: int = 0  # tries in a row
    asked_first: float = 0.0  # when it failed last, or a question last asked it first to learn whether it answers again


class AskedServer(dns.nameserver.Do53Nameserver):
    """A name server, for one question. patience: seconds of the first try."""

    def __init__(self, server: NameServer, patience: float = PER_SERVER) -> None:
        super().__init__(server.place.host, server.place.port or _DNS_PORT)
        self._server = server
        self._patience = patience

    async def async_query(self, request: dns.message.QueryMessage, timeout: float, *asked: Any, **named: Any) -> Any:  # noqa: ASYNC109 - dnspython's
        """Ask it; as dnspython has it."""
        server, patience = self._server, self._patience
        self._patience *= 2
        try:
            response = await super().async_query(request, min(timeout, patience), *asked, **named)
        except dns.message.Truncated:
            server.unanswered = 0
            raise
        except (dns.exception.Timeout, OSError):
            if timeout >= patience:  # less is left at the end of a question, which says nothing about the server
                server.unanswered += 1
                server.asked_first = monotonic()
            raise
        server.unanswered = 0
        return response


class NameServers:
    """All of them. configured: those of routing.dns.servers; empty: the system's."""

    def __init__(self, configured: Sequence[HostPort]) -> None:
        self._servers = [NameServer(HostPort(each.host, each.port or _DNS_PORT)) for each in configured]
        self._system = not configured
        self._rotate = False  # options rotate
        self._stamp: tuple[int, ...] | None = None

    def for_a_question(self) -> list[AskedServer]:
        """As the next question asks them; while none has answered for long, more patiently."""
        servers = self.in_order()
        silent = all(each.unanswered >= _SILENT for each in servers)
        return [AskedServer(each, PER_SERVER * 2 if silent else PER_SERVER) for each in servers]

    def in_order(self) -> list[NameServer]:
        """The one that the next question asks first, and the others."""
        if self._system:
            self._read()
        servers = list(self._servers)
        if self._rotate:
            random.shuffle(servers)
        servers.sort(key=lambda each: each.unanswered)
        if not servers[0].unanswered:
            now = monotonic()
            again = next((each for each in servers if each.unanswered and now >= each.asked_first + _AGAIN), None)
            if again is not None:
                again.asked_first = now
                servers.remove(again)
                servers.insert(0, again)
        return servers

    def _read(self) -> None:
        """Read the system's list, if it has changed. One that cannot be used does not replace another."""
        try:
            found = _SYSTEM.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            stamp = None
        if self._servers and stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            system = dns.resolver.Resolver(_SYSTEM)
        except (dns.resolver.NoResolverConfiguration, ValueError, OSError):
            if not self._servers:
                raise
            return
        named = [each for each in system.nameservers if isinstance(each, str)]
        known = {each.place.host: each for each in self._servers}
        self._servers = [known.get(address) or NameServer(HostPort(address, _DNS_PORT)) for address in named]
        self._rotate = system.rotate
