"""address — reads the addresses of an envelope

Owns: the syntax of a mailbox as Pillarbox accepts it. Pure.
Guarantees: no control character, space outside quotes or lone surrogate gets past, so nothing in an envelope can carry
    a second line into a log, a header or another SMTP command. The local-part is kept as given (RFC 5321 section 2.4),
    with quotes where a client left them out; the domain has the one spelling of shared/mail/domain.py: lower case,
    A-labels, one address literal for a host.
Raises: AddressRefused with the reason a client may read.
See: RFC 5321 sections 4.1.2, 4.5.3.1; RFC 6531 section 3.3.
"""

from __future__ import annotations

import re
from typing import Final

from shared.mail.domain import DomainRefused, literal, to_ascii
from shared.mail.message import Address

_LOCALPART_LIMIT: Final = 64  # RFC 5321 section 4.5.3.1.1
_DOMAIN_LIMIT: Final = 255  # RFC 5321 section 4.5.3.1.2
_LABEL_LIMIT: Final = 63  # RFC 1035 section 2.3.4
_ATEXT = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\U0010ffff-]"
_DOT_STRING = re.compile(rf"{_ATEXT}+(?:\.{_ATEXT}+)*")
_DOTS_ANYWHERE = re.compile(rf"(?:{_ATEXT}|\.)+")
_QUOTED_STRING = re.compile(r'"(?:[ !#-\[\]-~\u0080-\U0010ffff]|\\[ -~])*"')
_PATH = re.compile(
    r"<(?:@[^<>:]*:)?(?P<mailbox>(?:\"(?:[^\"\\]|\\.)*\"|[^<>\"])*)>(?P<parameters>(?:[ \t].*)?)", re.DOTALL
)
# Underscore is not a host name character, but real domains with mail carry it; what follows the rule is not refused
# for it.
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class AddressRefused(ValueError):
    """The address is not one; the text says why."""


class DomainMissing(AddressRefused):
    """There is a local-part but no domain."""


def split_path(argument: str) -> tuple[str, str] | None:
    """The address of a `<path>` exactly as it stands, and the parameters behind it; `<>` stays `<>`. None: no path.

    A source route is left out (RFC 5321 section 4.1.1.3). Angle brackets may be missing, as Postfix allows by default.
    Nothing else is repaired: `<us er@example.com>` does not mean user@example.com.
    """
    text = argument.strip()
    if text.startswith("<"):
        found = _PATH.fullmatch(text)
        return (found["mailbox"] or "<>", found["parameters"].strip()) if found else None
    mailbox, _, parameters = text.partition(" ")
    return (mailbox, parameters.strip()) if mailbox else None


def parse(text: str) -> Address:
    """The mailbox `local-part@domain`, without angle brackets."""
    if _UNSAFE.search(text):
        raise AddressRefused("control characters in address")
    localpart, at, domain = text.rpartition("@")
    if not at or not domain:
        raise DomainMissing("address has no domain")
    if not (_DOT_STRING.fullmatch(localpart) or _QUOTED_STRING.fullmatch(localpart)):
        raise AddressRefused("bad local-part")
    if len(localpart.encode()) > _LOCALPART_LIMIT:
        raise AddressRefused("local-part is longer than 64 octets")
    return Address(localpart, _domain(domain))


def parse_given(text: str) -> Address:
    """The same, for what clients give: dots may stand anywhere in the local-part, and one after the domain.

    `a..b@example.com.` becomes `"a..b"@example.com`, which RFC 5321 allows; Postfix does the same by default.
    """
    localpart, at, domain = text.rpartition("@")
    if _DOTS_ANYWHERE.fullmatch(localpart) and not _DOT_STRING.fullmatch(localpart):
        localpart = f'"{localpart}"'
    return parse(localpart + at + domain.removesuffix("."))


def parse_shown(text: str) -> Address:
    """The same, for an address that a header field shows.

    No encoded word is allowed (RFC 2047 section 5): the email package would decode it, and a comma in it would begin
    another mailbox.
    """
    address = parse(text)
    if "=?" in address.localpart:
        raise AddressRefused("encoded word in local-part")
    return address


def least_quoted(localpart: str) -> str:
    r"""The local-part with as few quotes as possible: `"a"` and `"\a"` are `a` (RFC 5321 section 4.1.2)."""
    if not _QUOTED_STRING.fullmatch(localpart):
        return localpart
    text = re.sub(r"\\(.)", r"\1", localpart[1:-1])
    return text if _DOT_STRING.fullmatch(text) else '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _domain(domain: str) -> str:
    if domain.startswith("["):
        found = literal(domain)
        if found is None:
            raise AddressRefused("bad address literal")
        return found
    try:
        domain = to_ascii(domain)
    except DomainRefused as reason:
        raise AddressRefused(str(reason)) from None
    if len(domain) > _DOMAIN_LIMIT:
        raise AddressRefused("domain is longer than 255 octets")
    labels = domain.split(".")
    if not all(_LABEL.fullmatch(label) and len(label) <= _LABEL_LIMIT for label in labels):
        raise AddressRefused("bad domain")
    return domain
