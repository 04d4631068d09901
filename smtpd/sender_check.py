"""sender_check — whether the From field of a message is its user's own

Owns: reading the addresses of From, as strictly as somebody who is being deceived would wish. Pure.
Called by: smtpd.policy_phases at the end of the content, where `authentication.checkfrom` says so.
Guarantees: a From field that cannot be read, or holds one address that is not the user's, is not the user's; so is a
    second From field, and one longer or more nested than anybody writes: reading costs some milliseconds whatever it
    holds. A message without From passes: nobody is claimed to have written it.
See: RFC 5322 sections 3.6 (one From field) and 3.6.2; RFC 6409 section 6.1 (enforced submission rights) and
    section 8.1 (Sender may be added, which we do not).
"""

from __future__ import annotations

import re
from email.utils import getaddresses
from typing import TYPE_CHECKING, Final

from shared.address import AddressRefused, parse
from smtpd.header_check import first_empty_line

if TYPE_CHECKING:
    from smtpd.users import User

_LONGEST: Final = 10_240  # octets of a From field: some hundred addresses
_NESTED: Final = 100  # comments and groups that may begin in it: the parser takes a call for each one within another
# Blanks before the colon are obsolete syntax (RFC 5322 section 4.5) that readers of mail still understand.
_FROM: Final = re.compile(rb"^from[ \t]*:((?:[^\r\n]+|\r?\n[ \t]|\r(?!\n))*)", re.IGNORECASE | re.MULTILINE)


def from_is_own(user: User, content: bytes) -> bool:
    """Whether every address in From is one the user may send as; `content` begins with the header."""
    if not user.senders:
        return True
    fields = _FROM.finditer(content, 0, first_empty_line(content))
    field = next(fields, None)
    if field is None:
        return True
    if next(fields, None) is not None or not _is_readable(field[1]):
        return False
    addresses = [address for _, address in getaddresses([_text(field[1])])]
    return bool(addresses) and all(_is_own(user, address) for address in addresses)


def _is_readable(field: bytes) -> bool:
    return len(field) <= _LONGEST and field.count(b"(") <= _NESTED and field.count(b":") <= _NESTED


def _is_own(user: User, address: str) -> bool:
    try:
        return user.may_send_as(parse(address))
    except AddressRefused:
        return False


def _text(field: bytes) -> str:
    return field.decode(errors="replace").replace("\r", "").replace("\n", "")
