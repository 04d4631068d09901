"""hosts — the hosts of a transport that may be connected to now, across domains

Guarantees: a host has one window and one memory of being dead for all domains whose mail it takes. An attempt waits for
    a turn in memory only where the host has answered an attempt within the last second, for `claim.wait` at most and
    within the host's share of recipients in flight; else it is parked at once, and so is all mail for a dead host until
    one attempt has tested it. A domain whose hosts are all shut is parked before its body is fetched. Hosts of one IPv6
    /64 that were not reached recently share one window beside their own, because one machine can have all of its
    addresses; it grows with their successes, and their failures do not count against the others. Memory is bounded:
    hosts without mail under way are forgotten, and of too many domains the oldest.
See: queued/destinations/destination.py, the window; docs/explanation/admission.md.
"""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address, IPv6Network, ip_address
from time import monotonic
from typing import TYPE_CHECKING, Final

from queued.destinations.destination import Destination, Waiting, room, steered
from queued.values import PoolClosedError
from queued.waiting.deferral import SOONEST, Deferral

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from queued.destinations.destination import Rank
    from queued.routing.route import Hop
    from shared.config.queued.settings import Claim as ClaimSettings
    from shared.config.queued.transport import Transport as TransportSettings

_REMEMBERED: Final = 60.0  # seconds a host is kept after its last delivery
_SWEEP: Final = 1000  # hosts at which those to forget are first looked for
_MOST_DOMAINS: Final = 20_000  # whose hosts are remembered
_SITE: Final = 64  # bits of an IPv6 address; one machine may use every address within (RFC 4291 section 2.5.1)
#: Where addresses hold those of IPv4: RFC 4291 section 2.5.5.2, RFC 6052 section 2.1, RFC 8215.
_OF_IPV4: Final = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_LED_THERE: Final = 600.0  # seconds: what DNS said longer ago is asked again


class Hosts:
    """Every host of one transport."""

    def __init__(
        self, transport: TransportSettings, claim: ClaimSettings, clock: Callable[[], float] = monotonic
    ) -> None:
        self._steering, self._rest = steered(transport)
        self._room = room(claim)
        self._patience = claim.wait.total_seconds()
        self._clock = clock
        self._destinations: dict[tuple[str, int], Destination] = {}
        self._beside: dict[Waiting, Waiting] = {}  # places of hosts not reached recently: the one in their /64
        self._sweep_at = _SWEEP
        self._led: dict[str, tuple[float, tuple[Hop, ...]]] = {}  # by domain, until when and where
        self._same: dict[tuple[Hop, ...], tuple[Hop, ...]] = {}  # thousands of domains lead to one place
        self._closed = False

    async def enter(self, hop: Hop, rank: Rank, recipients: int, octets: int) -> Waiting | Deferral:
        """A turn at this host, or for how long to park the delivery. PoolClosedError while stopping."""
        if self._closed:
            raise PoolClosedError
        destination = self._destination(hop)
        place = destination.offer(rank, recipients, octets, self._room, self._clock())
        if isinstance(place, Deferral):
            return place
        if place.started:
            return self._in_network(hop, place, rank) or place
        try:
            async with asyncio.timeout(self._patience):
                await place.settled.wait()
        except TimeoutError:
            destination.give_up(place, self._clock())
        except BaseException:
            self._abandon(place)
            raise
        if place.closed:
            raise PoolClosedError
        return place.away or place

    def leave(
        self,
        place: Waiting,
        *,
        reached: bool | None,
        why: str = "",
        barred: bool = False,
        most: int | None = None,
    ) -> None:
        """The turn is over. reached: whether the host answered, None when that says nothing about it.

        barred: it refused our login, and each further attempt may lock the account, at any of its hosts. most: it
        refused this connection, and serves so many others of ours.
        """
        now = self._clock()
        if (beside := self._beside.pop(place, None)) is not None:
            beside.destination.leave(beside, now, reached=reached or None)
        place.destination.leave(place, now, reached=reached, why=why, barred=barred, most=most)

    def led(self, domain: str, hops: Sequence[Hop]) -> None:
        """DNS says that mail for this domain goes there."""
        if len(self._same) > _MOST_DOMAINS:
            self._same.clear()
        known = tuple(sorted(hops))
        self._led.pop(domain, None)
        self._led[domain] = self._clock() + _LED_THERE, self._same.setdefault(known, known)
        if len(self._led) > _MOST_DOMAINS:
            del self._led[next(iter(self._led))]

    def shut(self, domain: str) -> Deferral | None:
        """For how long to park mail for this domain, when no host that it led to may be connected to; else None."""
        until, hops = self._led.get(domain, (0.0, ()))
        now = self._clock()
        if not hops or until < now:
            return None
        waits: list[Deferral] = []
        for hop in hops:
            if (shut := self._shut(hop, now)) is None:
                return None
            waits.append(shut)
        return soonest(waits)

    def retest(self) -> None:
        """Let the next delivery to each dead host test it."""
        now = self._clock()
        for destination in self._destinations.values():
            destination.retest(now)

    def login_refused(self, domain: str) -> bool:
        """Whether one of the hosts to which this domain led refuses our login, or did until just now."""
        _, hops = self._led.get(domain, (0.0, ()))
        known = (self._destinations.get((hop.host, hop.port)) for hop in hops)
        return any(host is not None and host.login_refused(self._clock()) for host in known)

    def close(self) -> None:
        """All that wait go back: the transport ends."""
        self._closed = True
        for destination in self._destinations.values():
            destination.close()

    def _abandon(self, place: Waiting) -> None:
        """The attempt ended while it waited for its turn."""
        if place.started:
            self.leave(place, reached=None)
        elif not place.settled.is_set():
            place.destination.give_up(place, self._clock())

    def _shut(self, hop: Hop, now: float) -> Deferral | None:
        """For how long to park mail for this host, None when it may be connected to."""
        host = self._destinations.get((hop.host, hop.port))
        shut = None if host is None else host.shut(now)
        if shut is not None or (host is not None and host.proven):
            return shut
        beside = self._destinations.get((_network(hop.host), hop.port))
        return None if beside is None else beside.shut(now)

    def _in_network(self, hop: Hop, place: Waiting, rank: Rank) -> Deferral | None:
        """Count the place in the host's /64 too; for how long to park the delivery when that has no room."""
        network, now = _network(hop.host), self._clock()
        if not network or place.destination.proven:
            return None
        lane = self._known((network, hop.port), f"hosts of {network} that have not answered yet")
        beside = lane.offer(rank, place.recipients, place.octets, self._room, now)
        if isinstance(beside, Waiting) and not beside.started:
            lane.give_up(beside, now)
            beside = beside.away or Deferral(SOONEST, lane.label)
        if isinstance(beside, Waiting):
            self._beside[place] = beside
            return None
        place.destination.leave(place, now)
        # Never Busy, which would keep the mail from the domain's next host.
        return Deferral(max(SOONEST, beside.seconds), beside.reason)

    def _destination(self, hop: Hop) -> Destination:
        return self._known((hop.host, hop.port), f"host {hop}")

    def _known(self, key: tuple[str, int], label: str) -> Destination:
        now = self._clock()
        destination = self._destinations.get(key)
        if destination is None:
            if len(self._destinations) >= self._sweep_at:
                self._destinations = {
                    k: known for k, known in self._destinations.items() if not known.forgettable(now, _REMEMBERED)
                }
                self._sweep_at = max(_SWEEP, 2 * len(self._destinations))
            destination = self._destinations[key] = Destination(label, self._steering, self._rest, now, patient=False)
        return destination


class Entrance:
    """The hosts as one delivery meets them. leave: a turn is over, as for the hosts themselves."""

    def __init__(self, hosts: Hosts, rank: Rank, recipients: int, octets: int) -> None:
        self._hosts = hosts
        self.leave = hosts.leave
        self._asked = rank, recipients, octets

    async def enter(self, hop: Hop) -> Waiting | Deferral:
        """A turn at this host, or for how long to park the delivery."""
        return await self._hosts.enter(hop, *self._asked)


def _network(host: str) -> str:
    """The IPv6 /64 of an address; "" for IPv4, also within IPv6, and for names and paths."""
    if ":" not in host or host.startswith("/"):
        return ""
    address = ip_address(host)
    if not isinstance(address, IPv6Address) or any(address in each for each in _OF_IPV4):
        return ""
    return str(IPv6Network((int(address), _SITE), strict=False))


def soonest(waits: Sequence[Deferral]) -> Deferral:
    """The one of these that ends first."""
    return min(waits, key=lambda wait: wait.seconds)
