"""find_hops — finds the hosts for one attempt, each time again

Owns: the order of questions: decide the way, ask for MX, cut loops, ask for addresses, cut loops again, sort; our own
    names and addresses; the hosts that could not be reached of late, which come after their equals.
Guarantees: at least one Hop, best first, or Unroutable with the outcome. Hosts that queued.yaml names are passed on by
    name, so that /etc/hosts holds for them; hosts from DNS are passed on by address, the address that was checked. At
    most _MOST_HOSTS hosts of a domain are considered, and _MOST_HOPS of their addresses.
See: RFC 5321 section 5.1; Postfix smtp_addr.c and inet_interfaces; queued/destinations/hosts.py, which leaves dead
    hosts alone.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from dataclasses import replace
from ipaddress import IPv6Address, ip_address
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Final

from queued.routing.dns_answer import Answer
from queued.routing.route import (
    PORT,
    ByMx,
    Fixed,
    Unroutable,
    choose,
    cut_loops,
    embedded,
    in_order,
    mail_hosts,
    names_one_host,
    no_domain,
    reachable,
)
from queued.routing.site import site

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from queued.routing.resolver import Resolver
    from queued.routing.route import Address, Hop, Host
    from queued.waiting.deferral import Deferral
    from shared.config.queued.transport import Transport
from queued.routing.site import Hops

_MOST_HOSTS: Final = 30  # by preference; the largest honest lists have about ten
_MOST_HOPS, _MOST_OF_A_HOST = 60, 10  # addresses of a domain's hosts, and of one of them
_AT_ONCE: Final = 5  # of them are asked about at the same time: a domain must not take the places of many others
_MOST_DEAD: Final = 10_000  # hosts that are remembered as dead


class Ourselves:
    """Names and addresses under which mail comes back to us."""

    def __init__(self, written: Iterable[str]) -> None:
        """`written`: host names and addresses, in any case."""
        self._names: set[str] = set()
        self._addresses: set[Address] = set()
        for text in written:
            try:
                self._addresses.add(ip_address(text.removeprefix("[").removesuffix("]")))
            except ValueError:
                self._names.add(text.lower().rstrip("."))

    def is_named(self, host: Host) -> bool:
        """Whether the host bears one of our names."""
        return host.name in self._names

    def has_address(self, host: Host) -> bool:
        """Whether one of the host's addresses is ours.

        This host's own count at port 25 only, as in Postfix: at another port another server may listen.
        """
        return any(embedded(a) in self._addresses or (host.port == PORT and _is_local(a)) for a in host.addresses)


class DeadHosts:
    """Hosts and ports where connecting, the greeting or EHLO failed, each for so many seconds.

    Pure; bounded: of too many the oldest is forgotten. It never removes a host or moves it behind one that is less
    preferred, so that a wrong memory affects only the order among equals.
    """

    def __init__(self, seconds: float, most: int = _MOST_DEAD) -> None:
        """`seconds`: how long a host stays dead after it failed; 0 remembers nothing."""
        self._seconds = seconds
        self._most = most
        self._until: dict[tuple[str, int], float] = {}

    def failed(self, hop: Hop, now: float) -> None:
        """It could not be talked to; `now` in monotonic seconds."""
        key = hop.host, hop.port
        self._until.pop(key, None)
        self._until[key] = now + self._seconds
        if len(self._until) > self._most:
            del self._until[next(iter(self._until))]

    def answered(self, hop: Hop) -> None:
        """It talks again."""
        if self._until:
            self._until.pop((hop.host, hop.port), None)

    def is_dead(self, host: str, port: int, now: float) -> bool:
        """Whether it failed so short a time ago."""
        return bool(self._until) and self._until.get((host, port), now) > now


class HopFinder:
    """Finds the hosts for one transport, and remembers which of them were dead of late: `dead`."""

    def __init__(self, transport: Transport, resolver: Resolver, ourselves: Ourselves) -> None:
        self._transport = transport
        self._resolver = resolver
        self._ourselves = ourselves
        self._random = Random()
        self.dead = DeadHosts(transport.connection.avoid.total_seconds())

    async def find(self, domain: str) -> list[Hop]:
        """Where to try for this recipient domain; raises Unroutable."""
        return (await self.found(domain)).hops

    async def found(self, domain: str) -> Hops:
        """The same, and the site that the exchangers are."""
        way = choose(domain, self._transport)
        if isinstance(way, Fixed):
            return Hops(self._in_order(way.hosts), None)
        by_mx, together = False, None
        if isinstance(way, ByMx):
            hosts, by_mx = await self._mail_hosts(way)
            together = site(hosts)
            names = list(dict.fromkeys(host.name for host in hosts))
            answers: dict[str, Answer[Address]] = {}
            for i in range(0, len(names), _AT_ONCE):
                some = names[i : i + _AT_ONCE]
                answers |= zip(some, await asyncio.gather(*map(self._addresses, some)), strict=True)
        else:
            hosts, answers = (way.host,), {way.host.name: Answer("found", way.host.addresses)}
        # Loops first: a host of ours that may not be connected to still says where the loop begins.
        hosts = tuple(replace(host, addresses=answers[host.name].records) for host in hosts)
        hosts = cut_loops(hosts, self._ourselves.has_address, domain)
        usable = reachable(domain, hosts, answers, by_mx=by_mx, private=self._transport.allow.private)
        return Hops(self._few(self._in_order(usable)), together)

    def shut(self, domain: str, *, follow: int = 0) -> Deferral | None:
        """For how long to park mail for this domain, because DNS cannot be asked about it now; else None.

        follow: how many newer recipients may follow.
        """
        try:
            way = choose(domain, self._transport)
        except Unroutable:
            return None
        return self._resolver.shut(way.domain, follow=follow) if isinstance(way, ByMx) else None

    def _few(self, hops: Sequence[Hop]) -> list[Hop]:
        """The first of these, some of each host: they are remembered for every domain."""
        tried, of_each = self._transport.connection.addresses, Counter[str]()
        few: list[Hop] = []
        for hop in hops:
            of_each[hop.name] += 1
            if of_each[hop.name] <= max(_MOST_OF_A_HOST, tried):
                few.append(hop)
        return few[: max(_MOST_HOPS, tried)]

    def _in_order(self, hosts: Iterable[Host]) -> list[Hop]:
        now = monotonic()
        return in_order(hosts, self._random, lambda host, port: self.dead.is_dead(host, port, now))

    async def _mail_hosts(self, way: ByMx) -> tuple[tuple[Host, ...], bool]:
        """The hosts preferred to us by name, and whether an MX names them."""
        try:
            answer = await self._resolver.mx(way.domain)
        except ValueError:
            raise no_domain(way.domain) from None
        hosts = mail_hosts(way, answer)
        return cut_loops(hosts, self._ourselves.is_named, way.domain)[:_MOST_HOSTS], answer.state == "found"

    async def _addresses(self, name: str) -> Answer[Address]:
        try:
            return await self._resolver.addresses(name)
        except ValueError:  # an MX may hold any octets, a name that cannot be asked for has no address
            return Answer("nothing")


def _is_local(address: Address) -> bool:
    """Whether this host has the address: then, and only then, a socket can be bound to it."""
    address = embedded(address)
    if not names_one_host(address):
        return False  # group and broadcast addresses can be bound everywhere
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
