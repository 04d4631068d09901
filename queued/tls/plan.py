"""plan — the TLS requirements for each host of one attempt

Owns: the questions about TLS that an attempt asks of DNS and of MTA-STS, and their order.
Guarantees: a transport whose mode needs no questions asks none, and for hosts that queued.yaml names decides once.
    Questions asked a moment ago for the route are answered from the resolver's memory. A failed question about one host
    keeps mail from that host only.
Raises: ResolverClosedError while stopping.
See: queued/tls/demanded.py for the decision; RFC 7672 sections 2.1.2 (failures) and 2.2; RFC 8461 section 5; RFC 8689
    section 3 for mail whose TLS is optional.
Bugs: smart hosts are not asked for an MTA-STS policy of their own (RFC 8461 section 3.4).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from queued.routing.dns_answer import Answer
from queued.routing.route import ByMx, Unroutable, choose
from queued.tls.demanded import CLEAR, HostKnowledge, decide
from queued.tls.mta_sts_cache import MtaSts
from queued.tls.mta_sts_fetch import Fetcher, Trust, by_resolver
from shared.config.fields import is_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from queued.routing.dns_answer import Tlsa
    from queued.routing.resolver import Resolver
    from queued.routing.route import Address, Hop
    from queued.tls.context import Contexts
    from queued.tls.demanded import TlsAsked, TlsWanted
    from queued.tls.mta_sts import StsPolicy
    from shared.config.queued.login import Over
    from shared.config.queued.transport import Transport

    type Plan = Mapping[Hop, TlsWanted]

_FETCH: Final = 10.0  # seconds for an MTA-STS policy: mail waits for it, though RFC 8461 section 3.3 suggests 60


class TlsPlanner:
    """Plans for one transport."""

    def __init__(self, transport: Transport, resolver: Resolver, contexts: Contexts, sts: MtaSts | None = None) -> None:
        """`sts`: policies shared with other transports, which their owner closes; else the transport keeps its own."""
        self._transport = transport
        self._resolver = resolver
        private = transport.allow.private
        find, trust = by_resolver(resolver, private=private), Trust(transport.tls.ca, private)
        self._fetcher = Fetcher(contexts.https, find, _FETCH, trust)
        self._sts = sts or MtaSts()
        # With smart hosts all are named by queued.yaml, and without DANE nothing is asked about them.
        self._settled = transport.connection.mode == "smarthost" and transport.tls.mode != "dane"
        self._known: dict[tuple[str, int, bool], TlsWanted] = {}

    async def plan(self, domain: str, hops: Iterable[Hop], asked: TlsAsked = "usual") -> Plan:
        """The requirements for each of these hosts, found for mail to `domain`; `asked` by the message.

        Mail whose TLS is optional goes by tls.mode alone: what the recipient's domain publishes does not count.
        """
        requiretls, published = asked == "only", asked != "optional"
        if self._settled:
            return {hop: self._decided(hop, requiretls) for hop in hops}
        settings = self._transport.tls
        domain = domain.lower().rstrip(".")
        known = HostKnowledge(trusted=True, requiretls=requiretls)
        if published and settings.mode != "disabled" and self._is_by_mx(domain):
            known = await self._of_exchangers(domain, known)
        plan: dict[Hop, TlsWanted] = {}
        for hop in hops:
            tlsa, base = known.tlsa, known.base
            if published and settings.mode == "dane" and known.trusted:
                tlsa, base = await self._tlsa(hop)
            plan[hop] = decide(
                settings, hop.name or hop.host, known._replace(tlsa=tlsa, base=base, login=self._over(hop))
            )
        return plan

    def _decided(self, hop: Hop, requiretls: bool) -> TlsWanted:  # noqa: FBT001 - a part of the key
        """The requirements for a host that queued.yaml names, and that needs no questions."""
        host = hop.name or hop.host
        key = host, hop.port, requiretls
        wanted = self._known.get(key)
        if wanted is None and hop.host.startswith("/"):  # a Unix socket: no attacker is in between
            wanted = CLEAR._replace(refused="REQUIRETLS, but connection.socket has no TLS" if requiretls else "")
        elif wanted is None:
            wanted = decide(
                self._transport.tls, host, HostKnowledge(trusted=True, requiretls=requiretls, login=self._over(hop))
            )
        self._known[key] = wanted
        return wanted

    def _over(self, hop: Hop) -> Over | None:
        """Over what our credentials may go to this host; None where we do not log in."""
        login = self._transport.connection.login(hop.host, hop.port)
        return None if login is None else login.over

    def _is_by_mx(self, domain: str) -> bool:
        try:
            return isinstance(choose(domain, self._transport), ByMx)
        except Unroutable:
            return False

    async def _of_exchangers(self, domain: str, known: HostKnowledge) -> HostKnowledge:
        """The same, and what holds for all mail exchangers of the domain."""
        dane = self._transport.tls.mode == "dane"
        known = known._replace(domain=domain, trusted=False)
        if known.requiretls or dane:
            # Validated are the hosts' names, or that there is no MX (RFC 7672 sections 2.2.1 and 2.2.2).
            answer = await self._resolver.mx(domain)
            known = known._replace(canonical=answer.canonical, trusted=answer.secure)
            if dane and answer.state == "failed":  # since the hosts were found
                known = known._replace(tlsa=_failed("its MX", answer), base=domain)
        return known._replace(policy=await self._policy(domain))

    async def _policy(self, domain: str) -> StsPolicy | None:
        if not self._transport.tls.mtasts:
            return None
        return await self._sts.policy(domain, self._resolver, self._fetcher)

    async def _tlsa(self, hop: Hop) -> tuple[Answer[Tlsa] | None, str]:
        """The host's TLSA records and the name below which they are; None where no answer about them counts.

        A question on the way to them that gets no answer counts as if they failed: an attacker who suppresses an answer
        must not gain by it (RFC 7672 section 2.1.2).
        """
        name = hop.name
        if is_address(name):
            return None, ""
        try:
            addresses = await self._resolver.addresses(name)
            if addresses.state == "failed":
                return _failed("its address", addresses), name
            alias = await self._resolver.alias(name) if addresses.canonical and not addresses.secure else None
        except ValueError:  # a name that cannot be in DNS
            return None, ""
        if alias is not None and alias.state == "failed":
            return _failed("its CNAME", alias), name
        for base in _bases(name, addresses, alias):
            with suppress(ValueError):
                answer = await self._resolver.tlsa(base, hop.port)
                if answer.state == "failed" or (answer.state == "found" and answer.secure):
                    return answer, base
        return None, ""


def _bases(name: str, addresses: Answer[Address], alias: Answer[str] | None) -> tuple[str, ...]:
    """The names below which a host of this name may have TLSA records, best first (RFC 7672 section 2.2.3).

    In zones that are not signed no server is asked for them: some fail on the question (section 2.2.2). A host that DNS
    does not know is in /etc/hosts, and may have records all the same.
    """
    if addresses.state != "found":
        return (name,)
    if addresses.secure:
        return (addresses.canonical, name) if addresses.canonical else (name,)
    # The target is not signed; the alias itself may be.
    return (name,) if alias is not None and alias.secure else ()


def _failed(what: str, answer: Answer[Any]) -> Answer[Tlsa]:
    return Answer("failed", (), f"{what}: {answer.text}")
