"""signature — signs requests as the Standard Webhooks specification says

Owns: the form of a secret, where one may be kept, and the three headers.
Guarantees: pure, but for reading a secret's file or variable. A secret is in no error and no log.
Raises: SecretRefused, in one line.
See: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shared import variables
from shared.errors import PillarboxError, cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX: Final = "whsec_"
FILE, VARIABLE = "file:", "env:"
ALLOWED: Final = "whsec_ and 24 to 64 octets in base64, file:PATH or env:NAME with such a secret in it"
_LEAST, _MOST = 24, 64  # octets, by the specification
_NEW: Final = 32


class SecretRefused(PillarboxError):
    """A secret cannot be used; the text says why, and not what it is."""


def new_secret() -> str:
    """A secret that was never used before."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_NEW)).decode()


def key_of(secret: str, environment: Mapping[str, str] = os.environ) -> bytes:
    """The octets that sign: of a secret, or of one that a file or a variable holds."""
    if secret.startswith(FILE):
        where = secret
        try:
            secret = Path(secret.removeprefix(FILE)).read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise SecretRefused(f"{where}: cannot be read: {cause(error)}") from None
    elif secret.startswith(VARIABLE):
        where = secret
        try:
            secret = variables.read(environment, secret.removeprefix(VARIABLE)) or ""
        except variables.UnreadableVariable as error:
            raise SecretRefused(f"{where}: {error}") from None
        if not secret:
            raise SecretRefused(f"{where}: the variable is not set")
    else:
        where = "the secret"
    secret = secret.strip()
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:  # binascii.Error, and what b64decode says of text beyond ASCII
        key = b""
    if not secret.startswith(PREFIX) or not _LEAST <= len(key) <= _MOST:
        raise SecretRefused(f"{where}: not a secret; allowed: {ALLOWED}")
    return key


def headers(keys: Sequence[bytes], name: str, at: int, body: bytes) -> list[tuple[str, str]]:
    """The headers of a request that is called `name` and sent at `at`: one signature for each key."""
    signed = f"{name}.{at}.".encode() + body
    signatures = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys]
    return [
        ("webhook-id", name),
        ("webhook-timestamp", str(at)),
        ("webhook-signature", " ".join(f"v1,{each}" for each in signatures)),
    ]
