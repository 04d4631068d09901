"""mailbox — reads `Name <address>` and `address`

Guarantees: pure; one reading for each text, so that what is checked is what is sent. A name has no control character,
    and encoded words in it are what they mean: written as they come, the email package would decode them without
    quotes, and a comma in one would begin another mailbox.
Raises: ValueError in words for the client.
See: RFC 5322 section 3.4; RFC 2047 (encoded words); shared/mail/address.py for the address.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.mail.address import AddressRefused, parse_shown
from shared.mail.decode import without_words

if TYPE_CHECKING:
    from shared.mail.message import Address

_NAMED: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^"<>]*?))\s*<([^<>\s]+|"[^"]*"@[^<>\s]+)>\s*')
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ALLOWED: Final = "allowed: user@example.com or Name <user@example.com>"


class Mailbox(NamedTuple):
    """A name, which may be empty, and an address."""

    name: str
    address: Address


@lru_cache(maxsize=1024)  # it is checked, then sent to; and senders come again
def read_mailbox(text: str) -> Mailbox:
    """The mailbox that a text names."""
    if _CONTROL.search(text):
        raise ValueError(f"has a control character; {_ALLOWED}")
    match = _NAMED.fullmatch(text)
    quoted, plain, inner = match.groups() if match else (None, "", text.strip())
    name = without_words(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else (plain or "").strip())
    if _CONTROL.search(name):
        raise ValueError(f"has a control character; {_ALLOWED}")
    if "=?" in name:
        raise ValueError(f"has a name with an encoded word in another one; {_ALLOWED}")
    try:
        return Mailbox(name, parse_shown(inner or ""))
    except AddressRefused as reason:
        raise ValueError(f"is not an address: {reason}; {_ALLOWED}") from None
