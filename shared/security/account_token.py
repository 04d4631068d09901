"""account-token — signs the secrets of account mail, and verifies them without a database

Owns: the two forms of a signed secret.
    mailroom's:  base64url(secret + HMAC-SHA256(key, path + secret + code)), 64 octets as 86 characters without padding.
    bound:       KEY-ID.EXPIRES.base64url(secret + HMAC-SHA256(key, context)), whose context also has the id of the key
                 and the time at which the token expires, so that several keys can be valid and an expired token is
                 refused without a look into the database.
Guarantees: needs nothing but the standard library. Signatures are compared in constant time, and every key is tried.
    Only the secret is returned: whether it was consumed is the database's to know.
Raises: ValueError for a key, a secret or a path that cannot be signed; verify raises nothing and returns None.
See: RFC 2104 (HMAC); RFC 4648 section 5 (base64url); docs/how-to/send/account-mail.md.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ACTIVATE: Final = "/activate"
RECOVER: Final = "/recover"
SECRET_OCTETS: Final = 32
KEY_OCTETS: Final = 32
KEY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")

_CONTEXT: Final = b"pillarbox account token 1"
_MAILROOM: Final = re.compile(r"[A-Za-z0-9_-]{86}")
_BOUND: Final = re.compile(r"([A-Za-z0-9_-]{1,32})\.([0-9]{1,12})\.([A-Za-z0-9_-]{86})")


@dataclass(frozen=True, slots=True)
class Verified:
    """The secret of a token whose signature is right; the key that signed it and its expiry, if they are bound."""

    secret: bytes
    key_id: str | None = None
    expires_at: int | None = None


def read_key(text: str) -> bytes:
    """A key of 32 octets, written as 64 hexadecimal digits."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_OCTETS or len(text) != 2 * KEY_OCTETS:
        raise ValueError("the key is not usable; allowed: 64 hexadecimal digits")
    return key


def sign(key: bytes, path: str, secret: bytes, code: str | None = None) -> str:
    """The signed secret in mailroom's form; a code is signed where the path is for recovery."""
    return _encoded(secret + _signature(key, _message(path, secret, code)))


def sign_bound(key_id: str, key: bytes, path: str, secret: bytes, expires_at: int, code: str | None = None) -> str:
    """The signed secret in the form that binds the key's id and the expiry."""
    if not KEY_ID.fullmatch(key_id):
        raise ValueError("the key's id is not usable; allowed: 1 to 32 letters, digits, hyphens and underscores")
    message = _bound_message(key_id, expires_at, path, secret, code)
    return f"{key_id}.{expires_at}.{_encoded(secret + _signature(key, message))}"


def verify(
    keys: Mapping[str, bytes], path: str, text: str, code: str | None = None, now: float | None = None
) -> Verified | None:
    """What a signed secret of either form says; None unless one of the keys, by id, signed it for this path and code.

    A bound one must also be of the key that it names, and must not have expired by `now` (the present).
    """
    if _MAILROOM.fullmatch(text):
        found = _decoded(text)
        if found is None:
            return None
        secret, signature = found
        message = _message(path, secret, code)
        matches = [hmac.compare_digest(signature, _signature(key, message)) for key in keys.values()]
        return Verified(secret) if any(matches) else None
    bound = _BOUND.fullmatch(text)
    found = _decoded(bound[3]) if bound else None
    if bound is None or found is None:
        return None
    secret, signature = found
    key_id, expires_at = bound[1], int(bound[2])
    expected = _signature(keys.get(key_id, bytes(KEY_OCTETS)), _bound_message(key_id, expires_at, path, secret, code))
    right = hmac.compare_digest(signature, expected) and key_id in keys
    if not right or expires_at <= (time.time() if now is None else now) or bound[2] != str(expires_at):
        return None
    return Verified(secret, key_id, expires_at)


def _message(path: str, secret: bytes, code: str | None) -> bytes:
    return path.encode() + _checked(secret) + _octets(code) * (path == RECOVER)


def _bound_message(key_id: str, expires_at: int, path: str, secret: bytes, code: str | None) -> bytes:
    parts = (_CONTEXT, key_id.encode(), b"%d" % expires_at, path.encode())
    return b"\0".join(parts) + b"\0" + _checked(secret) + _octets(code) * (path == RECOVER)


def _octets(code: str | None) -> bytes:
    """A code as it is signed; whatever a visitor typed has octets, also half of a surrogate pair."""
    return (code or "").encode("utf-8", "surrogatepass")


def _checked(secret: bytes) -> bytes:
    if len(secret) != SECRET_OCTETS:
        raise ValueError(f"the secret is not usable; allowed: {SECRET_OCTETS} octets")
    return secret


@lru_cache(maxsize=8)
def _keyed(key: bytes) -> hmac.HMAC:
    """The HMAC of this key before its message. To copy it takes less time than to make it."""
    return hmac.new(key, digestmod=hashlib.sha256)


def _signature(key: bytes, message: bytes) -> bytes:
    begun = _keyed(key).copy()
    begun.update(message)
    return begun.digest()


def _encoded(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def _decoded(text: str) -> tuple[bytes, bytes] | None:
    """Secret and signature; None where the last character has bits that encode nothing."""
    try:
        octets = base64.urlsafe_b64decode(text + "==")
    except binascii.Error:
        return None
    if _encoded(octets) != text:
        return None
    return octets[:SECRET_OCTETS], octets[SECRET_OCTETS:]
