"""sender_check — the check that the From field of a message is its user's own

Guarantees: pure. A From field fails if it cannot be read in one way, if it holds an address that is not the user's, or
    if its unquoted name is an address that is not the user's, because some readers show only that.
    A message without From passes: it claims no author.
See: RFC 5322 section 3.6.2 (originator fields); RFC 6409 section 6.1 (enforced submission rights) and section 8.1
    (Sender may be added, which we do not).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.mail.address import AddressRefused, parse
from shared.mail.from_header import authors

if TYPE_CHECKING:
    from smtpd.envelope.client import User


def from_is_own(user: User, content: bytes) -> bool:
    """Whether every address in From is one the user may send as; `content` begins with the header."""
    if not user.senders:
        return True
    found = authors(content)
    return found is not None and all(
        user.may_send_as(author.address) and all(_is_own(user, word) for word in author.name.split() if "@" in word)
        for author in found
    )


def _is_own(user: User, word: str) -> bool:
    try:
        return user.may_send_as(parse(word))
    except AddressRefused:
        return False
