"""secret — the secret from which the salts and costs of users that do not exist are made

Owns: the file of the secret, and the choice of a cost.
Guarantees: readable by its owner only; made once, whole or not at all, also by several processes at the same time.
Raises: ConfigError naming the file.
See: RFC 5802 section 9: without it a salt that changes each time would reveal that there is no such user.
"""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from shared.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

OCTETS: Final = 32


def read_or_make(path: Path) -> bytes:
    """The secret at `path`, made there when missing. Raises ConfigError."""
    try:
        if not path.exists():
            _make(path)
        secret = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"authentication.secret: {path}: {error.strerror}; allowed: a file smtpd can read, or make once"
        ) from None
    if len(secret) < OCTETS:
        raise ConfigError(f"authentication.secret: {path}: is too short; allowed: {OCTETS} octets or more")
    return secret


def cost_of_unknown[Cost: (int, str)](secret: bytes, name: str, what: str, costs: Collection[Cost]) -> Cost:
    """The one of `costs`, those of real users, that an unknown user has.

    Of a name it stays the same as long as that one is there and no better one comes (rendezvous hashing), so that
    asking again and again tells little. what: the kind of cost; the choices of two kinds have nothing in common.
    """
    return max(costs, key=lambda cost: hmac.digest(secret, f"{what} {cost} {name}".encode(), "sha256"))


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(OCTETS))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was first: its secret is used
            os.link(draft, path)
    finally:
        draft.unlink()
