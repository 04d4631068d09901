"""texts — texts with placeholders that rules write into metadata, reasons and header fields

Owns: filling placeholders such as `{user}` with facts. Pure.
Guarantees: a client's text is made printable and bounded first, so that it cannot break a line; an unknown fact is
    empty.
See: shared.config.smtpd.policy_fields, PLACEHOLDERS; docs/reference/policy.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shared.config.smtpd.policy_fields import PLACEHOLDER
from smtpd.envelope.places import host
from smtpd.policy.facts import known_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from smtpd.policy.facts import Facts

_LONGEST: Final = 320  # characters of one value, the longest address (RFC 5321 section 4.5.3.1)

READ: Final[dict[str, Callable[[Facts], str | None]]] = {
    "client": lambda facts: facts.client,
    "clientname": lambda facts: facts.clientname,
    "listener": lambda facts: facts.listener,
    "helo": lambda facts: facts.helo,
    "user": lambda facts: facts.user,
    "sender": lambda facts: facts.sender_text,
    "senderdomain": lambda facts: facts.sender_domain,
    "recipient": lambda facts: facts.recipient_text,
    "recipientdomain": lambda facts: facts.recipient_domain,
    "size": lambda facts: None if facts.size is None else str(facts.size),
}


#: The same as rules look for it in lists, so that another spelling is not another mailbox or name.
COMPARED: Final = READ | {
    "clientname": lambda facts: known_name(facts.clientname or ""),
    "helo": lambda facts: known_name(facts.helo or ""),
    "sender": lambda facts: facts.sender_compared,
    "recipient": lambda facts: facts.recipient_compared,
}
#: The same as rules count it: one host takes any address of its /64.
COUNTED: Final = COMPARED | {"client": lambda facts: host(facts.client)}


class Text:
    """A text, cut at its placeholders once."""

    __slots__ = ("_plain", "_written")

    def __init__(self, written: str) -> None:
        self._written = written
        self._plain = not PLACEHOLDER.search(written)

    def __str__(self) -> str:
        return self._written

    def fill(self, facts: Facts, score: float | None = None) -> str:
        """The text with every placeholder replaced by what is known."""
        if self._plain:
            return self._written

        def known(name: str) -> str:
            if name == "score":
                return "" if score is None else f"{score:.2f}"
            return one_line(READ[name](facts) or "")

        return PLACEHOLDER.sub(lambda match: known(match[1]), self._written)


def one_line(value: str) -> str:
    """A value of a client's making, bounded, with a question mark for everything unprintable."""
    return "".join(c if c.isprintable() else "?" for c in value[:_LONGEST])
