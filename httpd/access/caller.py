"""caller — the principal that a request acts for, and its rights

Owns: the judgement by the scopes of a key and the roles of its principal.
Guarantees: a caller may do what its key's scopes and its principal's roles both allow, and PostgreSQL judges again by
    the principal, for whom each transaction acts.
See: operate/keys.py for the scopes; sql/README.md, "On whose behalf".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from operate.keys import SCOPES
from shared.postgres import acting

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from shared.postgres import database
    from smtpd.envelope.client import User


@dataclass(frozen=True, slots=True)
class Caller:
    """A key that is valid, and the principal that it acts for."""

    prefix: str
    principal: str
    scopes: frozenset[str]
    roles: frozenset[str]
    user: User  # the same, as one that submits mail
    pool: database.Pool

    def may(self, scope: str) -> bool:
        """Whether both the key and the principal allow it."""
        return scope in self.scopes and not self.roles.isdisjoint(SCOPES[scope])

    def acting(self, seconds: float | None = None) -> AbstractAsyncContextManager[database.Connection]:
        """A connection each of whose transactions acts for the principal, as long as the block lasts.

        seconds: the longest a statement may take.
        """
        return acting.borrowed(self.pool, self.principal, seconds)
