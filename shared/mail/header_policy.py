"""header_policy — the policies by which the standard library's email package composes our messages

Owns: ASCII, for a header in ASCII with encoded words, and UTF8, for one that may hold UTF-8; a mailbox for a field.
Guarantees: the octets are those of email.policy.SMTP and SMTPUTF8. Of many messages a field that is always the same
    (From, MIME-Version, the parts' Content-Type) is parsed and folded once: that is most of the time of composing.
See: RFC 5322, RFC 2047, RFC 6532; https://docs.python.org/3/library/email.policy.html
"""

from __future__ import annotations

import re
from email.headerregistry import Address, BaseHeader
from email.policy import SMTP, EmailPolicy
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from shared.mail.message import Address as Envelope

_FIELDS: Final = 256  # kept: several times the fields of one message, so that those of every message stay
_LONGEST: Final = 200  # characters of a value that is kept


class _Once(EmailPolicy):
    """Keeps the fields that were used last, parsed and folded."""

    def header_max_count(self, name: str) -> int | None:
        """As EmailPolicy's, which builds a class to look it up."""
        return _max_count(name)

    def header_store_parse(self, name: str, value: Any) -> tuple[str, Any]:
        """As EmailPolicy's, which parses the text of a mailbox as well."""
        if type(value) is Address:
            value = str(value)
        if type(value) is str and len(value) <= _LONGEST:
            return _parsed(self, name, value)
        return super().header_store_parse(name, value)

    def fold_binary(self, name: str, value: Any) -> bytes:
        """As EmailPolicy's. A field keeps its own octets: equal values may have been written differently."""
        if not isinstance(value, BaseHeader):
            return super().fold_binary(name, value)
        kept: dict[_Once, bytes] = vars(value).setdefault("_octets", {})
        if self not in kept:
            kept[self] = super().fold_binary(name, value)
        return kept[self]


@lru_cache(_FIELDS)
def _max_count(name: str) -> int | None:
    return SMTP.header_max_count(name)


@lru_cache(_FIELDS)
def _parsed(policy: _Once, name: str, value: str) -> tuple[str, Any]:
    return EmailPolicy.header_store_parse(policy, name, value)


def mailbox(name: str, address: Envelope) -> Address:
    """The mailbox for a field: the class quotes a local part itself, and its `addr_spec` takes none beyond ASCII."""
    localpart = address.localpart
    if localpart.startswith('"'):
        localpart = re.sub(r"\\(.)", r"\1", localpart[1:-1]) or localpart
    return Address(name, localpart, address.domain)


ASCII: Final = _Once(linesep="\r\n")
UTF8: Final = _Once(linesep="\r\n", utf8=True)
