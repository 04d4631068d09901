"""scram_keys — the keys that a server stores for a password of SCRAM-SHA-256

Owns: making the keys, and their text form, which is PostgreSQL's. Pure.
Guarantees: keys check a proof but cannot make one; they never show in a repr.
Raises: ValueError for text that holds no keys.
See: RFC 5802 section 3, RFC 5803 section 1 (text form), RFC 7677.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass
from typing import Final

from shared.security.saslprep import password_octets

#: RFC 7677 section 4 asks for 4096 at least; the keys are stored beside argon2 hashes, and are the weaker of the two.
ITERATIONS: Final = 100_000
LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 10_000_000
SALT_OCTETS: Final = 16
DIGEST_OCTETS: Final = hashlib.sha256().digest_size

_TEXT = re.compile(r"SCRAM-SHA-256\$(\d{1,8}):([^$:]+)\$([^$:]+):([^$:]+)")


@dataclass(frozen=True, slots=True, repr=False)
class ScramKeys:
    """The salt and keys of one password: StoredKey checks the client, ServerKey proves the server."""

    iterations: int
    salt: bytes
    stored: bytes
    server: bytes

    @classmethod
    def make(cls, password: str, salt: bytes, iterations: int = ITERATIONS) -> ScramKeys:
        """The keys of a password; takes as long as a client takes to log in."""
        salted = hashlib.pbkdf2_hmac("sha256", password_octets(password), salt, iterations)
        stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
        return cls(iterations, salt, stored, hmac.digest(salted, b"Server Key", "sha256"))

    @classmethod
    def read(cls, text: str) -> ScramKeys:
        """Keys from their text form, `SCRAM-SHA-256$iterations:salt$storedkey:serverkey`. Raises ValueError."""
        if not (match := _TEXT.fullmatch(text)):
            raise ValueError("no SCRAM keys; allowed: SCRAM-SHA-256$iterations:salt$storedkey:serverkey")
        try:
            salt, stored, server = (b64decode(part, validate=True) for part in match.groups()[1:])
        except (Base64Error, ValueError):
            raise ValueError("no SCRAM keys: their parts are not base64") from None
        iterations = int(match[1])
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise ValueError(f"no usable SCRAM keys; allowed: {LEAST_ITERATIONS} to {MOST_ITERATIONS} iterations")
        if not salt or len(stored) != DIGEST_OCTETS or len(server) != DIGEST_OCTETS:
            raise ValueError("no SCRAM keys: a part has the wrong length")
        return cls(iterations, salt, stored, server)

    def __str__(self) -> str:
        salt, stored, server = (b64encode(part).decode() for part in (self.salt, self.stored, self.server))
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"
