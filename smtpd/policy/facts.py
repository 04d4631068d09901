"""facts — the facts about a client and its mail that policy can use

Owns: the phases of an SMTP session, the facts each adds, and the forms in which rules compare them (domains with
    A-labels in lower case, mailboxes without case and quotes, IP addresses as numbers). Pure.
Guarantees: a fact that a phase cannot know is None, and no condition matches on it. Readings are made once per value.
    All spellings of one mailbox or domain have one reading.
See: RFC 5321 sections 3 (phases), 2.4 and 4.1.2 (a client may use needless quotes; few hosts distinguish upper case
    from lower); RFC 5890 section 2.3.2.1 (A-labels).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from unicodedata import normalize

from shared.mail.domain import comparable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from shared.mail.message import Address
    from smtpd.policy.headers import HeaderFields

_QUOTED_PAIR: Final = re.compile(r"\\(.)", re.DOTALL)

type Phase = Literal["connect", "helo", "auth", "mailfrom", "rcptto", "eod"]


class AddressBits(NamedTuple):
    """An IP address as a number; `width` is 32 or 128."""

    width: int
    value: int


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The content check's verdict: its action in rspamd's words, score, symbols, and the fields it wants to add."""

    action: str
    score: float
    symbols: Mapping[str, float] = field(default_factory=dict)
    headers: tuple[tuple[str, str], ...] = ()
    message: str | None = None  # rspamd's text for the reply to the client (messages.smtp_message)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The known facts. `size` is SIZE= as declared until eod, then octets; `recipients` counts the present one."""

    now: datetime
    client: str  # IP address
    listener: str  # servers[].id
    clientname: str | None = None
    helo: str | None = None
    user: str | None = None
    tls: bool = False
    tlsversion: str | None = None  # "TLSv1.3", as Python's ssl names it
    tlsverified: bool = False
    sender: Address | None = None  # from mailfrom on None is the null sender
    recipient: Address | None = None
    recipients: int = 0
    size: int | None = None
    headers: HeaderFields | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)  # set by rules so far, for {metadata:KEY}

    @cached_property
    def client_bits(self) -> AddressBits | None:
        """The client's address as a number; None if it is none (a Unix socket's peer)."""
        return address_bits(self.client)

    @cached_property
    def sender_text(self) -> str:
        """The sender as it is in the queue; empty for the null sender."""
        return "" if self.sender is None else f"{self.sender.localpart}@{self.sender.domain}"

    @cached_property
    def sender_compared(self) -> str:
        """The sender in the one spelling that rules compare; empty for the null sender."""
        return "" if self.sender is None else known_mailbox(self.sender_text)

    @cached_property
    def sender_domain(self) -> str:
        """The sender's domain as A-labels; empty for the null sender."""
        return "" if self.sender is None else self.sender.domain

    @cached_property
    def sender_parents(self) -> tuple[str, ...]:
        """The domains above the sender's."""
        return parents(self.sender_domain)

    @cached_property
    def recipient_parents(self) -> tuple[str, ...]:
        """The domains above the recipient's."""
        return parents(self.recipient_domain)

    @cached_property
    def recipient_text(self) -> str:
        """The recipient as it is in the queue; empty before RCPT."""
        return "" if self.recipient is None else f"{self.recipient.localpart}@{self.recipient.domain}"

    @cached_property
    def recipient_compared(self) -> str:
        """The recipient in the one spelling that rules compare; empty before RCPT."""
        return "" if self.recipient is None else known_mailbox(self.recipient_text)

    @cached_property
    def recipient_domain(self) -> str:
        """The recipient's domain as A-labels; empty before RCPT."""
        return "" if self.recipient is None else self.recipient.domain


@lru_cache(maxsize=4096)
def address_bits(text: str) -> AddressBits | None:
    """An address as a number, without a zone; an IPv4-mapped IPv6 address is the IPv4 one."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if address.version == 6 and address.ipv4_mapped is not None:  # noqa: PLR2004 - IPv6
        address = address.ipv4_mapped
    return AddressBits(address.max_prefixlen, int(address))


@lru_cache(maxsize=4096)
def parents(domain: str) -> tuple[str, ...]:
    """The domains above one: of a.b.example, b.example and example."""
    labels = domain.split(".")
    return tuple(".".join(labels[start:]) for start in range(1, len(labels)))


def known_name(text: str) -> str:
    """A host's name in the one spelling that rules compare: like a domain, and without a trailing dot."""
    return comparable(text).removesuffix(".")


@lru_cache(maxsize=4096)
def known_mailbox(text: str) -> str:
    """A mailbox in the one spelling that rules compare: without quotes and case, the domain as A-labels.

    Text without `@` is not a mailbox and stays as it is.
    """
    local, at, domain = text.rpartition("@")
    if not at:
        return text
    if len(local) > 1 and local[0] == local[-1] == '"':
        local = _QUOTED_PAIR.sub(r"\1", local[1:-1])
    return f"{normalize('NFC', local).casefold()}@{comparable(domain)}"
