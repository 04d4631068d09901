"""lists — the lists that rules search: files that are read again when they change, and queries with cached answers

Owns: reading list files, the answers of list queries for their time to live.
Guarantees: a file that cannot be read at load is one clear line; later its old entries stay and one event says so.
    Searching a file's entries is a few dictionary look-ups for any number of them. A query that fails or takes too long
    is ListUnavailable, never an answer; its values are bound parameters.
Raises: ConfigError at load; ListUnavailable.
See: docs/reference/policy.md, condition `in`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import ip_network
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from shared.errors import ConfigError, cause
from shared.mail.domain import comparable
from shared.observe import events
from shared.outcome import outcome_of
from smtpd.policy.facts import address_bits, known_mailbox, known_name, parents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from shared.config.smtpd.policy import ListSource
    from smtpd.policy.facts import AddressBits

_MOST_KEPT: Final = 100_000  # answers of one query


type _Stamp = tuple[int, int, int]


class ListUnavailable(Exception):
    """A list cannot answer; the client is asked to try again later."""


class Networks:
    """Networks by length of prefix, so that a look costs as many look-ups as there are lengths."""

    def __init__(self, networks: Iterable[object]) -> None:
        """`networks` are IPv4Network, IPv6Network or text."""
        sets: dict[tuple[int, int], set[int]] = {}
        for each in networks:
            network = ip_network(str(each), strict=False)
            shift = network.max_prefixlen - network.prefixlen
            bits = int(network.network_address) >> shift
            sets.setdefault((network.max_prefixlen, shift), set()).add(bits)
        self._sets = {
            width: [(shift, prefixes) for (wide, shift), prefixes in sets.items() if wide == width]
            for width in {wide for wide, _ in sets}
        }

    def __contains__(self, bits: AddressBits | None) -> bool:
        if bits is not None:
            width, value = bits
            for shift, prefixes in self._sets.get(width, ()):
                if value >> shift in prefixes:
                    return True
        return False


class Domains:
    """Domains and `*.domains`, as A-labels in lower case, without a trailing dot."""

    def __init__(self, domains: Iterable[str]) -> None:
        written = [known_name(domain) for domain in domains]
        self._exact = frozenset(domain for domain in written if not domain.startswith("*."))
        self._below = frozenset(domain[2:] for domain in written if domain.startswith("*."))

    def have(self, domain: str, above: Iterable[str]) -> bool:
        """Whether a domain is among them; it and those above it are in A-labels and lower case already."""
        return domain in self._exact or not self._below.isdisjoint(above)

    def __contains__(self, domain: str) -> bool:
        return self.have(domain, parents(domain))


@dataclass(frozen=True, slots=True)
class Entries:
    """The content of a file, read in every form that a rule may search."""

    exact: frozenset[str]
    mailboxes: frozenset[str]  # as rules compare them
    domains: Domains
    networks: Networks

    @classmethod
    def read(cls, path: Path) -> Entries:
        """The entries of a file; raises OSError or ValueError (no UTF-8)."""
        lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8-sig").splitlines())
        entries = [line for line in lines if line]
        exact = frozenset(_lowered(entry) for entry in entries)
        mailboxes = frozenset(known_mailbox(entry) for entry in entries if "@" in entry)
        return cls(exact, mailboxes, Domains(e for e in entries if "@" not in e), Networks(_networks(entries)))

    def has(self, of: str, value: str) -> bool:
        """Whether a value, read as `of` says, is among them."""
        match of:
            case "client":
                return address_bits(value) in self.networks
            case "clientname" | "helo" | "senderdomain" | "recipientdomain":
                return value in self.domains
            case "sender" | "recipient":
                return known_mailbox(value) in self.mailboxes
            case _:
                return _lowered(value) in self.exact


class FileList:
    """A list in a file. `entries` is swapped whole, so that a decision sees one state."""

    def __init__(self, source: ListSource, place: str) -> None:
        """`place` is the key path messages name. Raises ConfigError."""
        assert source.file is not None  # noqa: S101 - the model has seen to it
        self.id, self._path = source.id, source.file
        try:
            self._seen: _Stamp | None = _stamp(self._path)
            self.entries = Entries.read(self._path)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{place}.file: {self._path}: cannot be read: {cause(error)}; allowed: a text file"
            ) from None

    async def refresh(self) -> bool:
        """Read the file again if it changed; whether the entries are new."""
        try:
            stamp, missing = _stamp(self._path), None
        except OSError as error:
            stamp, missing = None, error
        if stamp == self._seen:
            return False
        self._seen = stamp  # logged once, not at every look until the file is corrected
        try:
            if missing is not None:
                raise missing
            self.entries = await asyncio.to_thread(Entries.read, self._path)
        except (OSError, ValueError) as error:
            events.emit("policy.list_unreadable", list=self.id, file=self._path, error=cause(error))
            return False
        events.emit("policy.list_read", list=self.id, file=self._path, entries=len(self.entries.exact))
        return True


class AskQuery(Protocol):
    """Runs a list's query (shared.list_query does)."""

    async def __call__(self, query: str, value: str, seconds: float, /) -> bool:
        """Whether the query returned a row; raises ListUnavailable."""


class QueryList:
    """A list behind a query, with its answers for as long as they are kept. One query at a time for one value."""

    def __init__(self, source: ListSource, *, clock: Callable[[], float] = monotonic) -> None:
        assert source.query is not None  # noqa: S101 - the model has seen to it
        self.id, self._query, self._clock = source.id, source.query, clock
        self._keep, self._timeout = source.keep.total_seconds(), source.timeout.total_seconds()
        self._kept: OrderedDict[str, tuple[float, bool]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[bool]] = {}

    async def has(self, value: str, ask: AskQuery) -> bool:
        """Whether a value is in the list; raises ListUnavailable."""
        known = self._kept.get(value)
        if known is not None and known[0] > self._clock():
            return known[1]
        asking = self._asking.get(value)
        if asking is None:
            asking = asyncio.ensure_future(self._ask(value, ask))
            self._asking[value] = asking
            asking.add_done_callback(lambda done: self._asked(value, done))
        return await outcome_of(asking)

    async def _ask(self, value: str, ask: AskQuery) -> bool:
        answer = await ask(self._query, value, self._timeout)
        self._kept[value] = (self._clock() + self._keep, answer)
        self._kept.move_to_end(value)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return answer

    def _asked(self, value: str, done: asyncio.Task[bool]) -> None:
        del self._asking[value]
        if not done.cancelled():
            done.exception()  # retrieved: the callers that waited have it; without any it is not needed


def _stamp(path: Path) -> _Stamp:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _lowered(entry: str) -> str:
    """An address with its domain in the one spelling; other entries as they are, for user names have case."""
    local, at, domain = entry.rpartition("@")
    return f"{local}@{comparable(domain)}" if at else entry


def _networks(entries: Iterable[str]) -> Iterable[object]:
    for entry in entries:
        try:
            yield ip_network(entry, strict=False)
        except ValueError:
            continue  # a domain, an address or a name
