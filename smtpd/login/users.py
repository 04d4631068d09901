"""users — who may submit, and what they may do

Owns: the value User, and where users come from: smtpd.yaml, a file of users, or the table pillarbox.users.
Guarantees: a user's name is prepared (SASLprep) before it is looked for, so that one name has one spelling. Verifiers
    of passwords never show in a repr. A file that changed is read anew before the next answer; one that cannot be used
    is one event, and the users it had before stay.
Raises: UsersUnavailable while the table cannot be asked: a client is told 454, never 535.
See: RFC 4013 (SASLprep), RFC 6409 section 6.1 (enforced submission rights).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from shared.mail.message import Address
    from shared.security.scram_keys import ScramKeys


@dataclass(frozen=True, slots=True)
class User:
    """Someone who may submit after authenticating. Nothing given is: no restriction."""

    name: str
    argon2: str | None = field(default=None, repr=False)
    scram: ScramKeys | None = field(default=None, repr=False)
    disabled: bool = False
    senders: Sequence[str] = ()  # addresses, domains, *.domains, "" for the null sender; empty: any sender
    messages: int | None = None  # per hour
    recipients: int | None = None  # per hour
    partition: str | None = None
    transport: str | None = None
    hold: str | None = None  # quarantine id

    def may_send_as(self, sender: Address | None) -> bool:
        """Whether this envelope sender (None: the null sender) is among the user's own."""
        if not self.senders:
            return True
        if sender is None:
            return "" in self.senders
        own = {str(sender), sender.domain}
        own.update(f"*.{parent}" for parent in _parents(sender.domain))
        return not own.isdisjoint(self.senders)


class Users(Protocol):
    """Finds users by their prepared name."""

    async def find(self, name: str) -> User | None:
        """The user of this name, disabled ones too; raises UsersUnavailable when nobody can say."""

    async def iterations(self) -> Collection[int]:
        """What the SCRAM keys of all users cost, each number once; raises UsersUnavailable."""


class UsersUnavailable(Exception):
    """The source of users does not answer; clients are told to come back."""


def _parents(domain: str) -> list[str]:
    labels = domain.split(".")
    return [".".join(labels[index:]) for index in range(1, len(labels))]
