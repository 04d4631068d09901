"""route — decides where mail for a domain goes, without any query

Owns: Hop and Unroutable; the way of a domain (override, smart hosts, address literal, MX); the meaning of answers from
    DNS; cutting loops and forbidden addresses; the order of hosts.
Guarantees: pure; nothing is remembered from one attempt to the next. A definite answer of DNS may be permanent; a
    failure of DNS is deferred, and a way that only our configuration forbids is deferred as well.
See: RFC 5321 section 5.1 (MX, loops) and section 4.1.3 (address literals); RFC 7505 section 3 (null MX); RFC 2782 (the
    meaning of weight); RFC 3463 section 3 (X.1.2, X.4.3, X.4.4, X.4.6); Postfix smtp_addr.c, the model for this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.mail.outcome import Outcome
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from queued.routing.dns_answer import Answer
    from shared.config.queued.routing import HostPort
    from shared.config.queued.transport import Transport

type Address = IPv4Address | IPv6Address

PORT: Final = 25  # RFC 5321 section 4.5.4.2
_NAT64: Final = IPv6Network("64:ff9b::/96")  # RFC 6052 section 2.1


class Unroutable(Exception):
    """No host can take the mail; `outcome` is what the recipients get."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.text)
        self.outcome = outcome


class Hop(NamedTuple):
    """One place to connect to. host: name or address, or the path of a Unix socket; name: as in DNS or in YAML."""

    host: str
    port: int
    name: str

    def __str__(self) -> str:
        if self.host.startswith("/"):
            return f"unix:{self.host}"
        # As Postfix writes it: mx.example.com[192.0.2.1]:25.
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{shown}:{self.port}" if self.name in {self.host, ""} else f"{self.name}[{self.host}]:{self.port}"


@dataclass(frozen=True, slots=True)
class Host:
    """A host that takes mail for a destination; lower preference first, and `weight` decides among equals."""

    name: str
    port: int
    preference: int
    weight: int = 1
    addresses: tuple[Address, ...] = ()


class Fixed(NamedTuple):
    """Hosts that queued.yaml names."""

    hosts: tuple[Host, ...]


class ByLiteral(NamedTuple):
    """The address that is in the recipient's domain."""

    host: Host


class ByMx(NamedTuple):
    """The mail exchangers of this domain."""

    domain: str
    port: int


type Way = Fixed | ByLiteral | ByMx


def override(domain: str, routes: Mapping[str, HostPort]) -> str | None:
    """The key of `routes` that holds for the domain: itself, else the longest .parent; None when there is none."""
    if not routes:
        return None
    name = domain.lower().rstrip(".")
    if name in routes:
        return name
    while "." in name:
        name = name.partition(".")[2]
        if f".{name}" in routes:
            return f".{name}"
    return None


def way(domain: str, transport: Transport) -> str:
    """Recipients of one message whose domains have the same way go together, and may share a transaction."""
    key = override(domain, transport.routes)
    if key is not None:
        return f"route {transport.routes[key]}"
    return f"mx {domain.lower()}" if transport.connection.mode == "mx" else ""


def choose(domain: str, transport: Transport) -> Way:
    """How to find the hosts for a domain; raises Unroutable for text that is not a domain or an address literal."""
    connection = transport.connection
    key = override(domain, transport.routes)
    if key is not None:
        place = transport.routes[key]
        return Fixed((Host(place.host, place.port or PORT, 0),))
    if connection.socket is not None:
        return Fixed((Host(str(connection.socket.absolute()), 0, 0),))
    if connection.mode == "smarthost":
        if not connection.hosts:
            return Fixed((Host(connection.smarthost, connection.port, 0),))
        return Fixed(tuple(Host(h.server, h.port, h.preference, h.weight) for h in connection.hosts))
    if domain.startswith("["):
        return ByLiteral(Host(domain, connection.port, 0, addresses=(_literal(domain),)))
    return ByMx(domain, connection.port)


def mail_hosts(way: ByMx, answer: Answer[tuple[int, str]]) -> tuple[Host, ...]:
    """The hosts that an MX answer names; the domain itself where it has no MX (RFC 5321 section 5.1)."""
    if answer.state == "failed":
        raise _later("4.4.3", f"DNS: MX of {way.domain}: {answer.text}")
    if answer.state == "unknown":
        raise _never("5.1.2", f"DNS: {way.domain}: there is no such domain")
    if answer.state == "nothing":
        return (Host(way.domain, way.port, 0),)
    # RFC 7505 section 3: the lone root says that the domain takes no mail; beside others it says nothing.
    named = [(preference, name) for preference, name in answer.records if name not in {"", "."}]
    if not named:
        raise _never("5.1.10", f"DNS: {way.domain} takes no mail (null MX)")
    return tuple(Host(name.rstrip("."), way.port, preference) for preference, name in sorted(set(named)))


def cut_loops(hosts: Sequence[Host], ours: Callable[[Host], bool], domain: str) -> tuple[Host, ...]:
    """The hosts that are preferred to us: with ourselves among them, those of our preference and worse would lead back.

    Raises Unroutable 5.4.6 when none is left (RFC 5321 section 5.1).
    """
    own = [host.preference for host in hosts if ours(host)]
    if not own:
        return tuple(hosts)
    left = tuple(host for host in hosts if host.preference < min(own))
    if not left:
        raise _never("5.4.6", f"mail for {domain} loops back to ourselves: no mail exchanger is preferred to us")
    return left


def reachable(
    domain: str, hosts: Iterable[Host], answers: Mapping[str, Answer[Address]], *, by_mx: bool, private: bool
) -> tuple[Host, ...]:
    """The hosts with those of their addresses that we may connect to; Unroutable when that leaves nothing.

    `answers`: what DNS said about the addresses of each name. `by_mx`: an MX names the hosts.
    """
    usable: list[Host] = []
    forbidden: list[str] = []
    failed: list[str] = []
    for host in hosts:
        answer = answers[host.name]
        allowed = tuple(a for a in answer.records if may_connect(a, private=private))
        forbidden += [f"{host.name}[{a}]" for a in answer.records if a not in allowed]
        if allowed:
            usable.append(replace(host, addresses=allowed))
        if answer.state == "failed":
            failed.append(f"{host.name}: {answer.text}")
    if usable:
        return tuple(usable)
    if failed:
        raise _later("4.4.3", f"DNS: address of {failed[0]}")
    if forbidden:
        # The domain is to blame or our own view of it: which of the two, only the operator can say.
        raise _later("4.4.4", f"{domain} resolves to {forbidden[0]}, a private address; see allow.private")
    if by_mx:
        raise _never("5.4.4", f"DNS: no mail exchanger of {domain} has an address")
    raise _never("5.1.2", f"DNS: {domain} has neither mail exchanger nor address")


def may_connect(address: Address, *, private: bool) -> bool:
    """Whether mail may go to this address at all; `private` allows what only our own networks reach."""
    meant = embedded(address)
    if not names_one_host(meant) or meant.is_unspecified:
        return False
    return private or meant.is_global


def names_one_host(address: Address) -> bool:
    """Whether it is an ordinary address: not multicast, broadcast or reserved."""
    return not address.is_multicast and (address.is_loopback or not address.is_reserved)


def embedded(address: Address) -> Address:
    """The IPv4 address embedded in an IPv6 address, so that it cannot hide there; else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def in_order(hosts: Iterable[Host], random: Random, dead: Callable[[str, int], bool] = lambda *_: False) -> list[Hop]:
    """Where to try, best first: by preference, then by chance in proportion to the weights.

    `dead`: whether a host and port did not answer lately; such come last among those of their preference.
    """
    # Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006): u ** (1 / w), largest first.
    known = tuple(hosts)
    if len(known) == 1 and not known[0].addresses:
        return [Hop(known[0].name, known[0].port, known[0].name)]
    drawn = sorted(known, key=lambda host: (host.preference, -(random.random() ** (1 / host.weight))))
    ranked = [
        (host.preference, dead(target, host.port), Hop(target, host.port, host.name))
        for host in drawn
        for target in _targets(host, random)
    ]
    hops: dict[tuple[str, int], Hop] = {}
    for _, _, hop in sorted(ranked, key=lambda each: each[:2]):
        hops.setdefault((hop.host, hop.port), hop)
    return list(hops.values())


def _targets(host: Host, random: Random) -> list[str]:
    """Addresses of both families take turns, so that one dead family does not use the limit up."""
    if not host.addresses:
        return [host.name]
    shuffled = random.sample(host.addresses, len(host.addresses))
    first = [a for a in shuffled if a.version == shuffled[0].version]
    others = [a for a in shuffled if a.version != shuffled[0].version]
    return [str(a) for a in chain.from_iterable(zip_longest(first, others)) if a is not None]


def _literal(domain: str) -> Address:
    """The address in an address literal (RFC 5321 section 4.1.3)."""
    inner = domain[1:-1] if domain.endswith("]") else ""
    try:
        if inner[:5].upper() == "IPV6:" and "%" not in inner:
            return IPv6Address(inner[5:])
        return IPv4Address(inner)
    except ValueError:
        raise _never("5.1.2", f"{domain} is not a supported address literal") from None


def no_domain(domain: str) -> Unroutable:
    """The recipient's domain cannot be in DNS at all."""
    return _never("5.1.2", f"{show(domain)} is not a domain name")


def _never(enhanced: str, text: str) -> Unroutable:
    return Unroutable(Outcome("failed", "destination", None, enhanced, text))


def _later(enhanced: str, text: str) -> Unroutable:
    return Unroutable(Outcome("deferred", "destination", None, enhanced, text))
