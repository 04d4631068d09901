"""sender_check — the check that the fields that name a message's author and sender hold its user's own addresses

Owns: the rule for From, Sender, Resent-From and Resent-Sender, for mail by SMTP and by HTTP; for mail by SQL
    sql/schema/06_principal.sql has it, and accepts nothing more.
Guarantees: pure. A field fails if it cannot be read in one way, if it holds an address that is not the user's, or if
    its unquoted name is an address that is not the user's, because some readers show only that. There is exactly one
    From, or one is added that names the envelope sender, which is the user's.
See: RFC 5322 sections 3.6.2 (originator fields) and 3.6.6 (resent fields); RFC 6409 sections 6.1 (enforced submission
    rights), 6.3 (checks of message data) and 8.1 (Sender may be added, which we do not).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from shared.mail.address import AddressRefused, parse
from shared.mail.from_header import authors, senders

if TYPE_CHECKING:
    from shared.mail.from_header import Author
    from smtpd.envelope.client import User

type Fault = Literal["from", "missing", "sender"]  # sender: Sender, Resent-From or Resent-Sender


def originator_fault(user: User, content: bytes, *, adds_from: bool) -> Fault | None:
    """What is wrong with the fields that say who a message is from; None if all of it is the user's own.

    content: begins with the header. adds_from: whether we add the From field that is missing.
    """
    if not user.senders:
        return None
    found = authors(content)
    if found is None or not all(_names_only(user, author) for author in found):
        return "from"
    if not found and not adds_from:
        return "missing"
    others = senders(content)
    if others is None or not all(_names_only(user, author) for author in others):
        return "sender"
    return None


def _names_only(user: User, author: Author) -> bool:
    """Whether the mailbox, and every address in its name, is the user's."""
    return user.may_send_as(author.address) and all(_is_own(user, word) for word in author.name.split() if "@" in word)


def _is_own(user: User, word: str) -> bool:
    try:
        return user.may_send_as(parse(word))
    except AddressRefused:
        return False
