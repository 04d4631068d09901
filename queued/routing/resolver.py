"""resolver — asks DNS for mail exchangers, addresses, TLSA and TXT, and remembers the answers for a while

Owns: the one door to dnspython, its name servers and the time limit of a question; the kept answers.
Called by: queued.routing.find_hops; queued.tls.plan and queued.tls.mta_sts_cache.
Guarantees: a question ends by `timeout`; the same question asked by many at once goes out once. An answer is kept for
    its own time to live, at least _LEAST and at most `ttl` (one that says no, at most _MOST_NO); a failure is not kept.
    Memory is bounded by `entries`, the answer used longest ago going first. What comes back is always an Answer:
    only a name that cannot be asked for raises.
Raises: ValueError for text that is no domain name; ResolverClosedError once `close` began.
    An answer is `secure` only where `trusted` says that the name server's word counts.
See: RFC 1035 section 7; RFC 2308 section 5 (how long no is kept); RFC 7505; RFC 6840 sections 5.7 and 5.8 (AD).
Bugs: names with other letters than ASCII are encoded as IDNA 2003 has them. The name servers are read from the system
    when the first question is asked, and not again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import dns.asyncresolver
import dns.exception
import dns.flags
import dns.name
import dns.nameserver
import dns.rdatatype
import dns.resolver

from queued.routing.answer import Answer, Tlsa
from shared.errors import in_words
from shared.smtp_reply import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from queued.routing.route import Address
    from shared.routing_config import Dns

_LEAST: Final = 5.0  # seconds: a time to live of nothing would mean one question for each message
_MOST_NO: Final = 300.0  # seconds; RFC 2308 section 5 bids a limit, and a new domain should not wait long
_PAYLOAD: Final = 1232  # octets in one datagram without fragments (DNS Flag Day 2020)
_PER_SERVER: Final = 2.0  # seconds until the next name server is asked, as dnspython has it
_AT_ONCE: Final = 200  # questions, each with a socket of its own; descriptors often end at 1024
_MOST_RECORDS: Final = 50  # of one answer, the best MX first: nobody needs more, and 64 KiB can hold 4000
_DNS_PORT: Final = 53  # RFC 1035 section 4.2


class ResolverClosedError(Exception):
    """A question was asked, or still open, when the resolver closed."""


type _Question = tuple[dns.name.Name, dns.rdatatype.RdataType]
type _Records = Answer[Any]


class Resolver:
    """DNS for a whole worker."""

    def __init__(self, settings: Dns) -> None:
        self._settings = settings
        self._resolver: dns.asyncresolver.Resolver | None = None
        self._kept: OrderedDict[_Question, tuple[float, _Records]] = OrderedDict()  # with the time it ends
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._closing = False
        self._asking: dict[_Question, asyncio.Task[_Records]] = {}

    async def mx(self, domain: str) -> Answer[tuple[int, str]]:
        """Preference and name, in lower case, of each mail exchanger; the name of a null MX is "."."""
        return await self._answer(_name(domain), dns.rdatatype.MX)

    async def addresses(self, host: str) -> Answer[Address]:
        """The IPv4 and IPv6 addresses of a host; those of one family where the other cannot be learnt."""
        name = _name(host)
        both = await asyncio.gather(self._answer(name, dns.rdatatype.A), self._answer(name, dns.rdatatype.AAAA))
        records = tuple(record for answer in both for record in answer.records)
        if records:
            found = [answer for answer in both if answer.records]
            secure = all(answer.secure for answer in found)
            return Answer("found", records, secure=secure, canonical=found[0].canonical)
        # No record of one family proves nothing while the other is not known.
        gravest = next((a for a in both if a.state == "failed"), None) or next(
            (a for a in both if a.state == "unknown"), both[0]
        )
        return Answer(gravest.state, (), gravest.text)

    async def tlsa(self, host: str, port: int) -> Answer[Tlsa]:
        """The TLSA records for TLS at that port (RFC 7672 section 2.2.3)."""
        return await self._answer(_name(f"_{port}._tcp.{host}"), dns.rdatatype.TLSA)

    async def alias(self, name: str) -> Answer[str]:
        """The name that a CNAME of this one names, and none further."""
        return await self._answer(_name(name), dns.rdatatype.CNAME)

    async def txt(self, name: str) -> Answer[str]:
        """The TXT records, the strings of each joined; octets beyond ASCII as the replacement character."""
        return await self._answer(_name(name), dns.rdatatype.TXT)

    async def close(self) -> None:
        """Give up what is being asked: whoever waits for it has begun nothing, and learns at once."""
        self._closing = True
        asking = list(self._asking.values())
        for question in asking:
            question.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _answer(self, name: dns.name.Name, kind: dns.rdatatype.RdataType) -> _Records:
        question = (name, kind)
        kept = self._kept.get(question)
        if kept is not None:
            if monotonic() < kept[0]:
                self._kept.move_to_end(question)
                return kept[1]
            del self._kept[question]
        if self._closing:
            raise ResolverClosedError
        asking = self._asking.get(question)
        if asking is None:
            asking = self._asking[question] = asyncio.create_task(self._ask(question))
            asking.add_done_callback(lambda _: self._asking.pop(question, None))
        # Whoever asked first may go; the others still wait.
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if asking.cancelled() and current is not None and not current.cancelling():
                raise ResolverClosedError from None
            raise

    async def _ask(self, question: _Question) -> _Records:
        name, kind = question
        limit = self._settings.timeout.total_seconds()
        try:
            async with asyncio.timeout(limit), self._room:
                answer = await self._servers().resolve(
                    name, kind, raise_on_no_answer=False, lifetime=limit, search=False
                )
        except dns.resolver.NXDOMAIN as error:
            responses = error.responses().values()  # type: ignore[no-untyped-call] # dnspython's, without types
            lives = min((response.resolve_chaining().minimum_ttl for response in responses), default=0)
            return self._keep(question, Answer("unknown"), min(lives, _MOST_NO))
        except (dns.resolver.LifetimeTimeout, TimeoutError):
            return Answer("failed", (), f"no answer within {limit:g} s")
        except (dns.exception.DNSException, OSError, ValueError) as error:
            # SERVFAIL from every server, REFUSED, an answer that is none, no server to ask. The text is for people.
            return Answer("failed", (), printable(in_words(error).encode(errors="backslashreplace"))[:200])
        lives = answer.chaining_result.minimum_ttl
        secure = self._settings.trusted and bool(answer.response.flags & dns.flags.AD)
        canonical = "" if answer.canonical_name == name else _text(answer.canonical_name)
        if answer.rrset is None:
            return self._keep(question, Answer("nothing", secure=secure, canonical=canonical), min(lives, _MOST_NO))
        records = _records(kind, answer.rrset)
        return self._keep(question, Answer("found", records, secure=secure, canonical=canonical), lives)

    def _keep(self, question: _Question, answer: _Records, lives: float) -> _Records:
        ends = monotonic() + min(max(lives, _LEAST), self._settings.ttl.total_seconds())
        self._kept[question] = ends, answer
        while len(self._kept) > self._settings.entries:
            self._kept.popitem(last=False)
        return answer

    def _servers(self) -> dns.asyncresolver.Resolver:
        if self._resolver is None:
            servers = self._settings.servers
            made = dns.asyncresolver.Resolver(configure=not servers)
            if servers:
                made.nameservers = [dns.nameserver.Do53Nameserver(s.host, s.port or _DNS_PORT) for s in servers]
            made.timeout = _PER_SERVER
            made.use_edns(0, 0, _PAYLOAD)
            if self._settings.trusted:
                made.set_flags(dns.flags.RD | dns.flags.AD)  # RFC 6840 section 5.7: we understand AD in the answer
            self._resolver = made
        return self._resolver


def _name(text: str) -> dns.name.Name:
    """The absolute name; the root and what stands for it in zone files is nobody's."""
    try:
        name = dns.name.from_text(text)
    except (dns.exception.DNSException, UnicodeError) as error:
        raise ValueError(f"{text!r} is not a domain name") from error
    if name == dns.name.root:
        raise ValueError(f"{text!r} is not a domain name")
    return name


def _text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower()


def _records(kind: dns.rdatatype.RdataType, found: Iterable[Any]) -> tuple[object, ...]:
    """What the records say, without the wrapping."""
    if kind == dns.rdatatype.MX:
        return tuple(sorted((data.preference, _text(data.exchange)) for data in found)[:_MOST_RECORDS])
    if kind == dns.rdatatype.CNAME:
        return tuple(_text(data.target) for data in found)
    if kind == dns.rdatatype.TXT:
        return tuple(b"".join(data.strings).decode("ascii", "replace") for data in found)[:_MOST_RECORDS]
    if kind == dns.rdatatype.TLSA:
        return tuple(Tlsa(data.usage, data.selector, data.mtype, data.cert) for data in found)[:_MOST_RECORDS]
    return tuple(ip_address(data.address) for data in found)[:_MOST_RECORDS]
