"""domain — the one spelling of a domain name: lower case, international labels as A-labels; one address literal a host

Guarantees: pure. Every spelling of one domain (case, composed or decomposed letters, full-width letters and dots,
    U-label or A-label) becomes the same text, by the tables of IDNA 2008 alone: Python's own codec follows IDNA 2003,
    in which `faß.de` is `fass.de`, another owner's domain. An address literal has its shortest form, and an IPv4
    address mapped into IPv6 has the IPv4 one: both reach the same host. Domains are brought into this spelling once,
    where they enter (MAIL, RCPT, configuration, commands), and stay so; all later code compares text.
Raises: DomainRefused for text beyond ASCII that has no A-label, or that holds characters which cannot be seen.
See: RFC 5890 section 2.3.2.1 (A-labels), RFC 5891 section 5 (lookup), UTS 46 section 4 (nontransitional processing);
    RFC 5321 section 4.1.3 (address literals), RFC 4291 section 2.5.5.2 (IPv4-mapped addresses).
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

import idna

_LONGEST: Final = 255  # octets; RFC 5321 section 4.5.3.1.2
# A compatible character may become any other in ASCII: U+FF20 is an `@`.
_MAPPED: Final = re.compile(r"(\*\.)?[a-z0-9_.-]*")


class DomainRefused(ValueError):
    """The text has no A-labels; the message says why."""


def to_ascii(text: str) -> str:
    """The domain in lower case with A-labels.

    A leading `*.` or `.`, as patterns have, and a trailing dot stay. ASCII is only folded: whether it is a well-formed
    domain is for the caller to say. Raises DomainRefused.
    """
    if not text.isascii():
        return _to_ascii(text)
    return (literal(text) if text.startswith("[") else None) or text.lower()


def literal(text: str) -> str | None:
    """An address literal as it is compared, for all spellings of one host the same; None when it is not one."""
    inner = text[1:-1]
    # A zone (RFC 4007) is not part of a literal, yet ipaddress accepts one with any characters.
    if text != f"[{inner}]" or "%" in inner:
        return None
    try:
        if inner[:5].lower() != "ipv6:":
            return f"[{IPv4Address(inner)}]"
        address = IPv6Address(inner[5:])
    except AddressValueError:
        return None
    return f"[{address.ipv4_mapped}]" if address.ipv4_mapped is not None else f"[ipv6:{address}]"


def comparable(text: str) -> str:
    """As `to_ascii`; text that has no A-labels is folded only, for places that must continue with any text."""
    try:
        return to_ascii(text)
    except DomainRefused:
        return text.lower()


def spellings(domain: str) -> tuple[str, ...]:
    """A domain as `to_ascii` has it, and with U-labels where it has any: as the queue may hold it from before."""
    if domain.startswith("[ipv6:"):
        return domain, domain.replace("ipv6", "IPv6")
    try:
        written = ".".join(idna.ulabel(label) if label.startswith("xn--") else label for label in domain.split("."))
    except (idna.IDNAError, UnicodeError):
        return (domain,)
    return (domain,) if written == domain else (domain, written)


@lru_cache(maxsize=4096)
def _to_ascii(text: str) -> str:
    if len(text.encode(errors="surrogatepass")) > _LONGEST:
        raise DomainRefused("domain is longer than 255 octets")
    try:
        if any(not idna.uts46_remap(character, std3_rules=False) for character in text):
            raise DomainRefused("domain has characters that cannot be seen")
        labels = idna.uts46_remap(text, std3_rules=False).split(".")
        name = ".".join(label if label.isascii() else idna.alabel(label).decode() for label in labels)
    except (idna.IDNAError, UnicodeError):
        raise DomainRefused("domain is not valid in IDNA 2008") from None
    if not _MAPPED.fullmatch(name):
        raise DomainRefused("domain is not valid in IDNA 2008")
    if len(name) > _LONGEST:
        raise DomainRefused("domain is longer than 255 octets")
    return name
