"""resolver — asks DNS for mail exchangers, addresses, TLSA and TXT, and remembers the answers for a while

Owns: the one door to dnspython and the time limit of a question; the kept answers. Which name servers are asked, and
    in which order: queued/routing/name_servers.py.
Guarantees: a question ends by `timeout`; the same question asked by many at once goes out once. An answer is kept for
    its own time to live, at least _LEAST and at most `ttl` (one that says no, at most _MOST_NO); a failure for three
    times as long as it took, twice as long each further time, up to five minutes (RFC 9520 section 3.2).
    No caller waits for longer than `patience`: the question goes on without it, and its answer is kept for the next
    call. Questions that are not answered at once leave their place to others: a hundred of them go on, twenty of one
    zone, and the rest are given up or not asked, so that silent name servers do not delay other questions. A question
    that was given up is not asked again for as long as a failure is kept, and yields to questions never asked, of which
    the newest goes first (queued/routing/question_line.py). A question that was never asked does not fail. While they
    are silent an expired answer is used (RFC 8767), unless DNSSEC secured it or it says that a host or domain does not
    exist. Memory is bounded by `entries`, and by octets (queued/routing/dns_cache.py), and so is the work for an answer
    (queued/routing/careful_dns.py). The result is always an Answer: only a name that cannot be asked for raises. An
    answer is `secure` only where `trusted` says that the name server's word counts.
Raises: ValueError for text that is not a domain name; ParkedError while DNS has not answered; ResolverClosedError
    once `close` began.
See: RFC 1035 section 7; RFC 2308 section 5 (how long no is kept); RFC 7505; RFC 6840 sections 5.7 and 5.8 (AD).
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import dns.asyncresolver
import dns.exception
import dns.flags
import dns.name
import dns.rdatatype
import dns.resolver
import dns.reversename

from queued.routing.careful_dns import CarefulBackend
from queued.routing.dns_answer import Answer, Tlsa
from queued.routing.dns_cache import DnsCache
from queued.routing.name_servers import NameServers
from queued.routing.question_line import QuestionLine, QuestionTurn
from queued.routing.unanswered import Unanswered
from queued.waiting.deferral import SOONEST, Deferral, ParkedError, ParkedLine
from shared.errors import in_words
from shared.mail.domain import DomainRefused, to_ascii
from shared.mail.smtp_reply import printable
from shared.masking import show
from shared.outcome import outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from queued.routing.name_servers import NameServer
    from queued.routing.route import Address
    from shared.config.queued.routing import Dns

_LEAST: Final = 5.0  # seconds: a time to live of nothing would mean one question for each message
_MOST_NO: Final = 300.0  # seconds; RFC 2308 section 5 bids a limit, and a new domain should not wait long
_PAYLOAD: Final = 1232  # octets in one datagram without fragments (DNS Flag Day 2020)
_AT_ONCE: Final = 200  # questions, each with a socket of its own; descriptors often end at 1024
_PROMPT: Final = 1.0  # seconds for which a question has one of these places
_PATIENCE: Final = 1.2  # seconds that a caller waits: long enough to learn that it found no other place
_WAITING: Final = 200  # questions that wait for such a place
_SLOW, _SLOW_OF_A_ZONE = 100, 20  # questions that may go on after that
_STALE: Final = 86_400.0  # seconds for which an expired answer is used while no server answers (RFC 8767 section 6)
_QUICKEST: Final = 0.001  # seconds between two answers
_LATELY: Final = 0.1  # the weight of the last gap in their mean
_MOST_RECORDS: Final = 50  # of one answer, the best MX first: more are not needed, and 64 KiB can hold 4000
_STS: Final = "v=STSv1"  # RFC 8461 section 3.1
_READ: Final = (_STS, "v=spf1", "v=DMARC1")  # how the TXT records begin that are read; others are not kept
_LONGEST_TXT: Final = 512  # octets of one TXT record; an announcement has about 30
_KEYS: Final = "._domainkey."  # in the names of public keys, whose records are read whole
_SHORT: Final = 3  # letters of a label such as co or com, below which anyone can register names
_PLAIN: Final = re.compile(r"([a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}")  # is the text of a name as it stands
_LONGEST_PLAIN: Final = 253  # octets of it; RFC 1035 section 2.3.4 with the octets of length counted
_SOCKETS: Final = CarefulBackend()


class ResolverClosedError(Exception):
    """A question was asked, or still open, when the resolver closed."""


#: The name as text, as _name has it: dnspython computes the hash of its own names octet by octet.
type _Question = tuple[str, dns.rdatatype.RdataType]
type _Records = Answer[Any]


class Resolver:
    """DNS for a whole worker."""

    def __init__(self, settings: Dns, *, patience: float | None = _PATIENCE) -> None:
        """patience: seconds that a caller waits, None for as long as the question goes on."""
        self._settings = settings
        self._servers = NameServers(settings.servers)
        self._resolver = self._made()
        self._kept = DnsCache[_Question](settings.entries)
        self._line = QuestionLine(_AT_ONCE, _PROMPT)
        self._unanswered = Unanswered[_Question](settings.entries)
        self._closing = False
        self._slow: Counter[str] = Counter()  # questions by zone, and all under ""
        self._lines: dict[str, ParkedLine] = {}  # recipients that wait to ask again, by zone
        self._gap, self._answered_at = _QUICKEST, monotonic()  # mean seconds between two answers, and the last one
        self._going: dict[_Question, float] = {}  # the slow ones, and when each was asked
        self.patience = patience
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

    def shut(self, domain: str, *, follow: int = 0) -> Deferral | None:
        """For how long to park mail whose exchangers cannot be asked for now; None if they can, or are known.

        follow: how many newer recipients may follow.
        """
        try:
            question = _name(domain), dns.rdatatype.MX
        except ValueError:
            return None
        kept = self._kept.get(question)
        if (kept is not None and monotonic() < kept[0]) or self._stale(question):
            return None
        if question in self._asking:
            return self._soon(question) if self.patience is not None and question in self._going else None
        if (refused := self._refused(question)) is not None or self.patience is None:
            return refused
        number, asked = self._unanswered.number(question), self._unanswered.is_asked(question)
        full = self._line.is_full(_WAITING, number, monotonic(), asked=asked, follow=follow)
        return self._without_place(question, follow=follow) if full else None

    async def alias(self, name: str) -> Answer[str]:
        """The name that a CNAME of this one names, and none further."""
        return await self._answer(_name(name), dns.rdatatype.CNAME)

    async def txt(self, name: str, begins: str = _STS) -> Answer[str]:
        """The TXT records that begin with one of the words `_READ`: the first 512 octets of each.

        The strings of a record are joined; octets beyond ASCII become the replacement character.
        """
        found: Answer[str] = await self._answer(_name(name), dns.rdatatype.TXT)
        return replace(found, records=tuple(record for record in found.records if record.startswith(begins)))

    async def key(self, selector: str, domain: str) -> Answer[str]:
        """The TXT records where DNS has a public key for DKIM, whole (RFC 6376 section 3.6.2.1)."""
        return await self._answer(_name(f"{selector}{_KEYS}{domain}"), dns.rdatatype.TXT)

    async def pointer(self, address: Address) -> Answer[str]:
        """The names that the reverse record (PTR) of an address has (RFC 1035 section 3.5)."""
        return await self._answer(_text(dns.reversename.from_address(str(address))), dns.rdatatype.PTR)

    async def unanswered(self, host: str) -> list[str]:
        """The name servers that do not answer a question about this host, as routing.dns.servers has them."""
        try:
            servers = self._servers.in_order()
        except (dns.resolver.NoResolverConfiguration, ValueError):
            return []

        async def asked(server: NameServer) -> str:
            alone = Resolver(self._settings.model_copy(update={"servers": [server.place]}), patience=None)
            try:
                return (await alone.addresses(host)).state
            finally:
                await alone.close()

        states = await asyncio.gather(*map(asked, servers))
        return [str(server.place) for server, state in zip(servers, states, strict=True) if state == "failed"]

    async def close(self) -> None:
        """Give up the open questions: the callers that wait have begun nothing, and learn at once."""
        self._closing = True
        asking = list(self._asking.values())
        for question in asking:
            question.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _answer(self, name: str, kind: dns.rdatatype.RdataType) -> _Records:
        question = (name, kind)
        kept = self._kept.get(question)
        if kept is not None and monotonic() < kept[0]:
            return kept[1]
        if self._closing:
            raise ResolverClosedError
        try:
            return await self._asked(question)
        except ParkedError:
            stale = self._stale(question)
            if stale is None:
                raise
            return stale

    def _stale(self, question: _Question) -> _Records | None:
        """The earlier answer, while the name servers are silent. One secured by DNSSEC is not used without them."""
        ended, answer = self._kept.get(question) or (0.0, None)
        if answer is None or answer.state == "failed" or answer.secure or monotonic() > ended + _STALE:
            return None
        # That it does not exist would bounce mail.
        return None if answer.state == "unknown" and question[1] != dns.rdatatype.TXT else answer

    async def _asked(self, question: _Question) -> _Records:
        asking = self._asking.get(question)
        if asking is None:
            turn = self._turn(question)
            asking = self._asking[question] = asyncio.create_task(self._ask(question, turn))
            asking.add_done_callback(partial(self._asked_for, question, turn))
        limit = self._settings.timeout.total_seconds()
        try:
            async with asyncio.timeout(self.patience if self.patience is not None and self.patience < limit else None):
                return await outcome_of(asking, ResolverClosedError)
        except TimeoutError:
            if question not in self._going:  # it has no place yet
                raise ParkedError(self._without_place(question)) from None
            raise ParkedError(self._soon(question)) from None

    def _asked_for(self, question: _Question, turn: QuestionTurn, asking: asyncio.Task[_Records]) -> None:
        del self._asking[question]
        self._line.leave(turn)
        if not asking.cancelled():
            asking.exception()  # retrieved: callers that wait have it; there may be none

    def _turn(self, question: _Question) -> QuestionTurn:
        """Its place in the line; ParkedError where it was not answered lately, or others come before it."""
        if (refused := self._refused(question)) is not None:
            raise ParkedError(refused)
        turn = QuestionTurn(self._unanswered.number(question), asked=self._unanswered.is_asked(question))
        if not self._line.enter(turn, None if self.patience is None else _WAITING):
            raise ParkedError(self._without_place(question))
        return turn

    def _refused(self, question: _Question) -> Deferral | None:
        """For how long not to ask it: it was not answered lately, or too many of its zone are not."""
        if self.patience is None:
            return None
        name, now = question[0], monotonic()
        zone = _zone(name)
        if self._slow[zone] >= _SLOW_OF_A_ZONE:
            gap = self._settings.timeout.total_seconds() / _SLOW_OF_A_ZONE
            return _silent(name, self._lines.setdefault(zone, ParkedLine()).seconds(now, gap))
        if left := self._unanswered.left(question, now):
            return _silent(name, left + random.uniform(SOONEST, SOONEST + left))
        return None

    def _soon(self, question: _Question) -> Deferral:
        """For how long to park while a slow question goes on: as long again as it has taken, at most to its end."""
        took = monotonic() - self._going[question]
        wait = min(took, self._settings.timeout.total_seconds() - took)
        return _silent(question[0], max(wait, SOONEST) + random.uniform(0, _PROMPT))

    def _without_place(self, question: _Question, *, follow: int = 0) -> Deferral:
        """For how long to park who finds no place: so that those who come again are as many as there will be places."""
        name, now = question[0], monotonic()
        if not self._unanswered.is_asked(question):
            return _silent(name, self._line.put_off(self._unanswered.number(question), now, follow=follow))
        slowest = self._settings.timeout.total_seconds() / _SLOW
        gap = min(max(self._gap, (now - self._answered_at) / _AT_ONCE), slowest)
        return _silent(name, self._lines.setdefault("", ParkedLine()).seconds(now, gap))

    def _heard(self) -> None:
        """A name server has said something: how often one does tells how soon others have their turn."""
        now, slowest = monotonic(), self._settings.timeout.total_seconds() / _SLOW
        self._gap += _LATELY * (min(max(now - self._answered_at, _QUICKEST), slowest) - self._gap)
        self._answered_at = now

    @contextmanager
    def _slowly(self, question: _Question) -> Iterator[None]:
        """A place among the slow questions; ParkedError where there is none."""
        zone = _zone(question[0])
        if self.patience is not None and (self._slow[""] >= _SLOW or self._slow[zone] >= _SLOW_OF_A_ZONE):
            left = self._unanswered.fail(question, _PROMPT, monotonic())
            parked = self._without_place(question)
            raise ParkedError(parked._replace(seconds=max(parked.seconds, left)))
        self._slow.update(("", zone))
        self._going[question] = monotonic() - _PROMPT
        try:
            yield
        finally:
            del self._going[question]
            self._slow.subtract(("", zone))
            if not self._slow[zone]:
                del self._slow[zone]
                self._lines.pop(zone, None)

    async def _resolve(self, question: _Question, turn: QuestionTurn, limit: float) -> dns.resolver.Answer:
        """A name server's answer within the limit; ParkedError where other questions take all the room."""
        try:
            async with asyncio.timeout(limit):
                await turn.settled.wait()
        except TimeoutError:
            if self.patience is None:
                raise
        if not turn.placed:
            raise ParkedError(self._without_place(question))
        name, kind = question
        asked = None
        try:
            try:
                asked = asyncio.ensure_future(self._query(dns.name.from_text(name), kind, limit))
                await asyncio.wait((asked,), timeout=_PROMPT)
            finally:
                self._line.leave(turn)
            if asked.done():
                self._heard()
                self._line.answered(turn, monotonic())
                return asked.result()
            with self._slowly(question):
                return await asked
        finally:
            if asked is not None and not asked.done():
                asked.cancel()
                await asyncio.wait((asked,))  # until its socket is closed

    async def _ask(self, question: _Question, turn: QuestionTurn) -> _Records:
        name, kind = question
        limit = self._settings.timeout.total_seconds()
        began = monotonic()
        try:
            answer = await self._resolve(question, turn, limit)
        except dns.resolver.NXDOMAIN as error:
            responses = error.responses().values()  # type: ignore[no-untyped-call] # dnspython's, without types
            self._unanswered.forget(question)
            lives = min((response.resolve_chaining().minimum_ttl for response in responses), default=0)
            return self._keep(question, Answer("unknown"), min(lives, _MOST_NO))
        except (dns.resolver.LifetimeTimeout, TimeoutError):
            took = monotonic() - began
            return self._keep_failure(question, f"no answer within {limit:g} s", took)
        except (dns.exception.DNSException, OSError, ValueError) as error:
            # SERVFAIL from every server, REFUSED, an answer that is none, no server to ask. The text is for people.
            text = printable(in_words(error).encode(errors="backslashreplace"))[:200]
            return self._keep_failure(question, text, monotonic() - began)
        self._unanswered.forget(question)
        lives = answer.chaining_result.minimum_ttl
        secure = self._settings.trusted and bool(answer.response.flags & dns.flags.AD)
        canonical = _text(answer.canonical_name)
        canonical = "" if canonical == name else canonical
        if answer.rrset is None:
            return self._keep(question, Answer("nothing", secure=secure, canonical=canonical), min(lives, _MOST_NO))
        records = _records(kind, answer.rrset, whole=_KEYS in name)
        return self._keep(question, Answer("found", records, secure=secure, canonical=canonical), lives)

    def _keep_failure(self, question: _Question, text: str, took: float) -> _Records:
        kept = self._unanswered.fail(question, took, monotonic())
        answer: _Records = Answer("failed", (), text)
        return self._stale(question) or self._keep(question, answer, kept, least=0.0)

    def _keep(self, question: _Question, answer: _Records, lives: float, least: float = _LEAST) -> _Records:
        ends = monotonic() + min(max(lives, least), self._settings.ttl.total_seconds())
        self._kept.keep(question, ends, answer)
        return answer

    def _made(self) -> dns.asyncresolver.Resolver:
        made = dns.asyncresolver.Resolver(configure=False)
        made.timeout = self._settings.timeout.total_seconds()  # AskedServer has less
        made.use_edns(0, 0, _PAYLOAD)
        if self._settings.trusted:
            made.set_flags(dns.flags.RD | dns.flags.AD)  # RFC 6840 section 5.7: we understand AD in the answer
        return made

    async def _query(self, name: dns.name.Name, kind: dns.rdatatype.RdataType, limit: float) -> dns.resolver.Answer:
        """Ask the name servers one after another."""
        self._resolver.nameservers = self._servers.for_a_question()  # resolve reads it before it first waits
        return await self._resolver.resolve(
            *(name, kind), raise_on_no_answer=False, lifetime=limit, search=False, backend=_SOCKETS
        )


def _name(text: str) -> str:
    """The absolute name, without the last dot; ValueError for the root and its spellings in zone files."""
    try:
        text = to_ascii(text)
        if _PLAIN.fullmatch(text) and len(text) <= _LONGEST_PLAIN:
            return text
        name = dns.name.from_text(text)
    except (dns.exception.DNSException, DomainRefused) as error:
        raise ValueError(f"{show(text)} is not a domain name") from error
    if name == dns.name.root:
        raise ValueError(f"{show(text)} is not a domain name")
    return _text(name)


def _zone(name: str) -> str:
    """The zone whose name servers are probably asked: the last two labels, three below such as co.uk."""
    labels = name.rsplit(".", 3)[-3:]
    short = len(labels) > 1 and len(labels[-2]) <= _SHORT
    return ".".join(labels if short else labels[-2:])


def _silent(name: str, seconds: float) -> Deferral:
    return Deferral(seconds, f"DNS does not answer about {_zone(name)}", stopped="destination")


def _text(name: dns.name.Name) -> str:
    return name.to_text(omit_final_dot=True).lower()


def _records(kind: dns.rdatatype.RdataType, found: Iterable[Any], *, whole: bool) -> tuple[object, ...]:
    """The content of the records, without the wrapping. whole: of any TXT record, not only of those that are read."""
    if kind == dns.rdatatype.MX:
        return tuple(sorted((data.preference, _text(data.exchange)) for data in found)[:_MOST_RECORDS])
    if kind in {dns.rdatatype.CNAME, dns.rdatatype.PTR}:
        return tuple(_text(data.target) for data in found)[:_MOST_RECORDS]
    if kind == dns.rdatatype.TXT:
        texts = (b"".join(data.strings)[: None if whole else _LONGEST_TXT].decode("ascii", "replace") for data in found)
        return tuple(text for text in texts if whole or text.startswith(_READ))[:_MOST_RECORDS]
    if kind == dns.rdatatype.TLSA:
        return tuple(Tlsa(data.usage, data.selector, data.mtype, data.cert) for data in found)[:_MOST_RECORDS]
    return tuple(ip_address(data.address) for data in found)[:_MOST_RECORDS]
