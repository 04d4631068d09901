"""own_policy — reads the MTA-STS policies of our own domains as a sender that honours them would

Owns: the look at the domains that signing.rules of queued.yaml name: record, policy file, mail exchangers; the verdict,
    which is pure.
Guarantees: each domain has ten seconds at most. A domain without a record has no policy, which is its own decision.
    Where DNS does not answer the finding is a note: host.dns raises the alarm.
See: RFC 8461 sections 3.1 (one record), 3.2 (max_age, mx) and 4.1 (matching).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from operate.doctor.checks import Finding, Severity, listed
from queued.tls.context import Contexts
from queued.tls.mta_sts import names_host, read_record
from queued.tls.mta_sts_fetch import Fetcher, NoPolicyError, by_resolver
from shared.config.queued.transport_tls import TransportTls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from queued.routing.resolver import Resolver
    from queued.tls.mta_sts import StsPolicy

_CHECK: Final = "domain.mta_sts"
_PATIENCE: Final = 10.0  # seconds for each domain
_SHORT: Final = 86_400  # seconds: senders forget such a policy between two mails, and then take any host


class OwnPolicy(NamedTuple):
    """What a domain publishes. fault: what is wrong with it; silent: DNS did not answer; policy: None without one."""

    fault: str = ""
    silent: bool = False
    policy: StsPolicy | None = None
    exchangers: tuple[str, ...] = ()


def policy_fetcher(resolver: Resolver) -> Fetcher:
    """Fetches as a worker does that trusts the system's authorities; our own hosts may be at private addresses."""
    return Fetcher(Contexts(TransportTls()).https, by_resolver(resolver, private=True), _PATIENCE)


async def own_policies(domains: list[str], resolver: Resolver, fetcher: Fetcher) -> Finding:
    """The finding about these domains, asked side by side."""
    found = await asyncio.gather(*(_own_policy(domain, resolver, fetcher) for domain in domains))
    return verdict(dict(zip(domains, found, strict=True)))


def verdict(found: Mapping[str, OwnPolicy]) -> Finding:
    """Each policy can be had, names the domain's mail exchangers, and lasts."""
    faults = [f"{domain}: {fault}" for domain, own in found.items() for fault in _faults(own)]
    if faults:
        remedy = (
            "change the file https://mta-sts.DOMAIN/.well-known/mta-sts.txt or the MX records, then the record's id"
        )
        return Finding(_CHECK, Severity.WARN, "; ".join(faults), remedy)
    if silent := [domain for domain, own in found.items() if own.silent]:
        return Finding(_CHECK, Severity.NOTE, f"DNS does not answer about {listed(silent)}")
    published = {domain: own.policy for domain, own in found.items() if own.policy is not None}
    if idle := [f"{domain} is {policy.mode}" for domain, policy in published.items() if policy.mode != "enforce"]:
        remedy = "mode: enforce, once reports (TLS-RPT) are quiet"
        return Finding(_CHECK, Severity.NOTE, f"policies without effect: {listed(idle)}", remedy)
    return Finding(_CHECK, Severity.OK, f"{listed(published)} found" if published else "no domain publishes a policy")


def _faults(own: OwnPolicy) -> list[str]:
    """What is wrong with what one domain publishes."""
    if own.fault:
        return [own.fault]
    if own.policy is None or own.policy.mode == "none":
        return []
    policy = own.policy
    strange = [host for host in own.exchangers if not names_host(policy, host)]
    faults = [f"the policy does not name the mail exchanger {listed(strange)}"] if strange else []
    if policy.max_age < _SHORT:
        faults.append(f"max_age is {policy.max_age} s, less than a day")
    return faults


async def _own_policy(domain: str, resolver: Resolver, fetcher: Fetcher) -> OwnPolicy:
    try:
        async with asyncio.timeout(_PATIENCE):
            announced = await resolver.txt(f"_mta-sts.{domain}")
            exchangers = await resolver.mx(domain)
    except (ValueError, TimeoutError):
        return OwnPolicy(silent=True)
    if "failed" in {announced.state, exchangers.state}:
        return OwnPolicy(silent=True)
    if not announced.records:
        return OwnPolicy()
    if read_record(announced.records) is None:
        return OwnPolicy(fault=f"_mta-sts.{domain} has not exactly one record with an id")
    try:
        policy = await fetcher.fetch(domain)
    except NoPolicyError as error:
        return OwnPolicy(fault=str(error))
    hosts = tuple(host for _, host in exchangers.records if host)  # "" is a domain without mail (RFC 7505)
    return OwnPolicy(policy=policy, exchangers=hosts or (domain,))
