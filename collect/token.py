"""token — a collected token, and its signed secret

Guarantees: pure.
See: shared/security/account_token.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shared.security.account_token import ACTIVATE, RECOVER, sign, sign_bound

if TYPE_CHECKING:
    from collections.abc import Iterable

ACTIVATION: Final = "activation"
RECOVERY: Final = "password_recovery"
ACTIONS: Final = (ACTIVATION, RECOVERY)
PATHS: Final = {ACTIVATION: ACTIVATE, RECOVERY: RECOVER}


class Token(NamedTuple):
    """One token and its account, as a collector gets it."""

    id: int
    action: str
    secret: bytes
    code: str
    expires_at: int
    created_at: int
    email: str
    login: str
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs secrets with one key; `key_id` None: in mailroom's form."""

    key: bytes
    key_id: str | None = None

    def __call__(self, token: Token) -> str:
        """The token's signed secret."""
        path = PATHS[token.action]
        if self.key_id is None:
            return sign(self.key, path, token.secret, token.code)
        return sign_bound(self.key_id, self.key, path, token.secret, token.expires_at, token.code)


def in_order(rows: Iterable[Any]) -> list[Token]:
    """The tokens of a batch: recovery first, and of each action the oldest."""
    return sorted(map(Token._make, rows), key=lambda token: (token.action != RECOVERY, token.id))
