"""site — the domains that are served by the same mail exchangers

Owns: the name of a site, the test whether two domains are one site, and the memory of each domain's last site.
Guarantees: pure but for the memory, which is bounded and only a guess: an attempt uses the exchangers that it finds
    itself. Domains are one site only when every exchanger, its preference and its port are the same; the name may
    coincide for different ones, so that policies stay readable.
See: KumoMTA, "site name", whose form the names have; docs/how-to/deliver/route-mail.md
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.routing.route import Unroutable, way

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from queued.routing.route import Hop, Host
    from shared.config.queued.transport import Transport

_LONGEST: Final = 255
_MOST_DOMAINS: Final = 10_000
_KEPT: Final = 300.0  # seconds; a change of exchangers costs no more than transactions that are not shared


class Site(NamedTuple):
    """The exchangers of one or more domains. name: for people and policies; hosts: what it is compared by."""

    name: str
    hosts: frozenset[tuple[int, str, int]]


def site(hosts: Iterable[Host]) -> Site:
    """The site that these exchangers are."""
    members = frozenset((host.preference, host.name, host.port) for host in hosts)
    return Site(site_name(name for _, name, _ in members), members)


def site_name(names: Iterable[str]) -> str:
    """One name for several host names: what they share, and in brackets what they do not.

    mx1.example.com and mx2.example.com are (mx1|mx2).example.com; with example.com itself, (mx1|mx2)?.example.com.
    """
    hosts = sorted({name.lower().rstrip(".") for name in names})
    if len(hosts) < 2:  # noqa: PLR2004 - one name is its own
        return "".join(hosts)
    columns = zip_longest(*(host.split(".")[::-1] for host in hosts))
    name = ".".join(_together(column) for column in [*columns][::-1])
    return name if len(name) <= _LONGEST else f"{hosts[0]}+{len(hosts) - 1}"


def _together(labels: Sequence[str | None]) -> str:
    """The labels at one place of several names; None where a name has ended."""
    distinct = sorted({label for label in labels if label is not None})
    optional = "?" if None in labels else ""
    return f"({'|'.join(distinct)}){optional}" if len(distinct) > 1 or optional else distinct[0]


class Parted(Exception):
    """Domains that were one site are one no longer."""


def site_way(domain: str, transport: Transport, seen: Site | None) -> str:
    """The way of a domain whose site was seen; its own where it was not, or where DNS is not asked."""
    own = way(domain, transport)
    if seen is None or not own.startswith("mx "):
        return own
    return "site " + " ".join(f"{preference}:{host}:{port}" for preference, host, port in sorted(seen.hosts))


class SeenSites:
    """The site that each domain was last seen in."""

    def __init__(self, most: int = _MOST_DOMAINS, kept: float = _KEPT) -> None:
        """`most`: how many domains are remembered; `kept`: for how many seconds."""
        self._seen: dict[str, tuple[float, Site | None]] = {}  # None: alone
        self._most = most
        self._kept = kept

    def saw(self, domain: str, found: Site, now: float) -> None:
        """Remember; `now` in monotonic seconds. A domain that was parted stays alone for its time."""
        until, known = self._seen.get(domain.lower(), (now, None))
        if known is not None or now >= until:
            self._keep(domain, found, now)

    def part(self, domains: Iterable[str], now: float) -> None:
        """These share no attempt for a while, though their exchangers are the same."""
        for domain in domains:
            self._keep(domain, None, now)

    def of(self, domain: str, now: float) -> Site | None:
        """The site of the domain, while it is known."""
        until, found = self._seen.get(domain.lower(), (now, None))
        return found if now < until else None

    def together(self, domains: Sequence[str], found: Sequence[Hops | BaseException], now: float) -> Hops:
        """The exchangers of these domains, if they are one site; remembered for each.

        Raises what was found for a lone domain, Parted when several are not one site.
        """
        for domain, each in zip(domains, found, strict=True):
            if isinstance(each, BaseException) or each.site is None:
                self._seen.pop(domain.lower(), None)
            else:
                self.saw(domain, each.site, now)
        if len(found) == 1 and isinstance(found[0], BaseException):
            raise found[0]
        for each in found:
            if isinstance(each, BaseException) and not isinstance(each, Unroutable):
                raise each
        sites = [each for each in found if not isinstance(each, BaseException)]
        if len(sites) < len(found) or any(each.site != sites[0].site for each in sites):
            raise Parted
        return sites[0]

    def _keep(self, domain: str, found: Site | None, now: float) -> None:
        self._seen.pop(domain.lower(), None)
        self._seen[domain.lower()] = (now + self._kept, found)
        if len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]


class Hops(NamedTuple):
    """Where one attempt may connect to. site: of the exchangers, None where DNS was not asked for any."""

    hops: list[Hop]
    site: Site | None
