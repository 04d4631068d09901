"""published — asks for the records by which others judge our mail: SPF, DKIM, DMARC, MTA-STS, and reverse records

Owns: the questions about the domains that signing.rules of queued.yaml name, and about the host's own addresses where
    mail goes straight to mail exchangers; the verdicts, which are pure.
Guarantees: each question has ten seconds at most. A domain written with * is not asked about. Where DNS does not answer
    the finding is a note: host.dns raises the alarm.
See: RFC 7208 sections 3.2 and 4.5 (one record begins with v=spf1); RFC 6376 section 3.6.1; RFC 7489 section 6.6.3;
    RFC 1912 section 2.1 (PTR and address agree); docs/how-to/start/set-up-a-host.md.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from operate.doctor.checks import Finding, Severity, listed
from operate.doctor.own_policy import own_policies, policy_fetcher
from queued.routing.dns_answer import Answer
from queued.signing.keys import UnusableKey, read_key
from queued.signing.records import difference, published_keys
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from queued.routing.resolver import Resolver
    from queued.tls.mta_sts_fetch import Fetcher
    from shared.config.queued.settings import QueuedConfig
    from shared.config.queued.signing import SigningKey

_SPF, _DKIM, _DMARC, _REVERSE = "domain.spf", "domain.dkim", "domain.dmarc", "host.reverse"
_PATIENCE: Final = 10.0  # seconds for each question


async def records(queued: QueuedConfig, resolver: Resolver, fetcher: Fetcher | None = None) -> list[Finding]:
    """A finding for each kind of record. fetcher: of MTA-STS policies; None for the system's authorities."""
    keys = [(key, domain) for rule in queued.signing.rules for key, domain in published_keys(rule)]
    domains = sorted({domain for _, domain in keys})
    names = sorted({each.hostname for each in queued.transports if each.connection.mode == "mx" and each.hostname})
    spf, dmarc, faults, pointers, policies = await asyncio.gather(
        _each(domains, lambda domain: resolver.txt(domain, "v=spf1")),
        _each(domains, lambda domain: _dmarc(resolver, domain)),
        asyncio.gather(*(_key(resolver, key, domain) for key, domain in keys)),
        _each(names, lambda name: _pointers(resolver, name)),
        own_policies(domains, resolver, fetcher or policy_fetcher(resolver)),
    )
    found = dict(zip((f"{key.selector}._domainkey.{domain}" for key, domain in keys), faults, strict=True))
    return [sender_policy(spf), signatures(found), policy(dmarc), policies, reverse(pointers)]


def sender_policy(answers: Mapping[str, Answer[str]]) -> Finding:
    """Each domain says by one record who may send for it (SPF)."""
    faults = _not_one("SPF", answers)
    remedy = "publish one TXT record that begins with v=spf1; the file dns.zone of `pillarbox init` has one"
    return _verdict(_SPF, faults, remedy, answers)


def signatures(faults: Mapping[str, Answer[str]]) -> Finding:
    """DNS has the public key of each signature (DKIM). faults: by name, the fault as its record."""
    wrong = [f"{name}: {listed(fault.records)}" for name, fault in faults.items() if fault.records]
    return _verdict(_DKIM, wrong, "see `pillarbox dkim check`", faults)


def policy(answers: Mapping[str, Answer[str]]) -> Finding:
    """Each domain, or one above it, says what receivers do with mail that fails (DMARC)."""
    return _verdict(_DMARC, _not_one("DMARC", answers), 'publish _dmarc.DOMAIN. IN TXT "v=DMARC1; p=none"', answers)


def reverse(answers: Mapping[str, Answer[str]]) -> Finding:
    """The reverse record of each address of this host has the host's name."""
    faults = [f"{name}: {listed(answer.records)}" for name, answer in answers.items() if answer.records]
    if not answers:
        return Finding(_REVERSE, Severity.OK, "no transport sends to mail exchangers under a name of its own")
    remedy = "have the owner of the address set its reverse record (PTR) to the host's name"
    return _verdict(_REVERSE, faults, remedy, answers)


def _not_one(kind: str, answers: Mapping[str, Answer[str]]) -> list[str]:
    """The domains that do not have exactly one such record; receivers ignore two as they ignore none."""
    return [
        f"{domain} has {how_many(len(answer.records), f'{kind} record')}"
        for domain, answer in answers.items()
        if answer.state != "failed" and len(answer.records) != 1
    ]


def _verdict(check: str, faults: list[str], remedy: str, answers: Mapping[str, Answer[str]]) -> Finding:
    if faults:
        return Finding(check, Severity.WARN, "; ".join(faults), remedy)
    if silent := [name for name, answer in answers.items() if answer.state == "failed"]:
        return Finding(check, Severity.NOTE, f"DNS does not answer about {listed(silent)}")
    return Finding(check, Severity.OK, f"{listed(answers)} found" if answers else "signing.rules names no domain")


async def _each[Found](names: list[str], ask: Callable[[str], Awaitable[Answer[Found]]]) -> dict[str, Answer[Found]]:
    """The answer about each name, asked side by side."""
    return dict(zip(names, await asyncio.gather(*(_asked(ask(name)) for name in names)), strict=True))


async def _asked[Found](asking: Awaitable[Answer[Found]]) -> Answer[Found]:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await asking
    except (ValueError, TimeoutError) as error:
        return Answer("failed", text=str(error) or "no answer in time")


async def _dmarc(resolver: Resolver, domain: str) -> Answer[str]:
    """The policy of a domain, or of the nearest domain above it that has one."""
    answer = await resolver.txt(f"_dmarc.{domain}", "v=DMARC1")
    above = domain.partition(".")[2]
    if answer.records or answer.state == "failed" or "." not in above:
        return answer
    return await _dmarc(resolver, above)


async def _pointers(resolver: Resolver, name: str) -> Answer[str]:
    """What is wrong with the reverse record of each address of a host; nothing where all name it."""
    addresses = await resolver.addresses(name)
    if addresses.state == "failed":
        return Answer("failed", text=addresses.text)
    wrong = []
    for address in addresses.records:
        answer = await resolver.pointer(address)
        if answer.state == "failed":
            return Answer("failed", text=answer.text)
        if name.lower() not in answer.records:
            wrong.append(f"{address} is {listed(answer.records) if answer.records else 'without one'}")
    return Answer("found", tuple(wrong))


async def _key(resolver: Resolver, key: SigningKey, domain: str) -> Answer[str]:
    """The fault of a key, or of its record in DNS; nothing when it is right."""
    try:
        ours = read_key(key.file).record()
    except UnusableKey as error:
        return Answer("found", (str(error),))
    found = await _asked(resolver.key(key.selector, domain))
    if found.state == "failed":
        return found
    fault = difference(ours, found.records[0] if found.records else None)
    return Answer("found", (fault,) if fault else ())
