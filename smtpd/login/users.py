"""users — the users that may submit mail, and their rights

Owns: the value User, and the sources of users: smtpd.yaml, a file of users, or the table pillarbox.users.
Guarantees: a user's name is prepared (SASLprep) before it is looked up, so that one name has one spelling. Verifiers
    of passwords never show in a repr. A file that changed is read again before the next answer; one that cannot be used
    is one event, and the old users stay.
Raises: UsersUnavailable while the table cannot be queried: a client gets 454, never 535.
See: RFC 4013 (SASLprep), RFC 6409 section 6.1 (enforced submission rights).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from smtpd.envelope.client import User


class Costs(NamedTuple):
    """What the verifiers of all users cost, each cost once: an unknown user is given one of them."""

    iterations: frozenset[int] = frozenset()  # of SCRAM keys
    hashes: frozenset[str] = frozenset()  # the parameters of argon2 hashes (smtpd.login.passwords.cost_of)


class Users(Protocol):
    """Finds users by their prepared name."""

    async def find(self, name: str) -> User | None:
        """The user of this name, disabled ones too; raises UsersUnavailable when it cannot be looked up."""

    async def costs(self) -> Costs:
        """What the verifiers of all users cost; raises UsersUnavailable."""


class UsersUnavailable(Exception):
    """The source of users does not answer; clients are asked to try again later."""
