"""suppression — the spelling of addresses in the table of suppressions, and the signed return path

Owns: the spelling in which addresses are compared; making and checking return paths that name a message. Pure.
Guarantees: an address has one spelling in every writer: lower case, no quotes without need, the domain in A-labels. A
    return path that was not made with the secret is not accepted; it holds only the message's id.
See: sql/schema/11_notice.sql; docs/how-to/deliver/suppression.md; VERP, https://cr.yp.to/proto/verp.txt.
"""

from __future__ import annotations

import base64
import hmac
from typing import Final
from uuid import UUID

from shared.mail.address import least_quoted
from shared.mail.domain import comparable

_PREFIX: Final = "b"
_SIGNATURE: Final = 10  # octets: 80 bits cannot be guessed
_UUID: Final = 16  # octets
_PARTS: Final = 3


def target(written: str) -> str:
    """An address or a domain as the table has it."""
    localpart, at, domain = written.strip().rpartition("@")
    return f"{least_quoted(localpart).lower()}{at}{comparable(domain)}"


def return_path(message: UUID, secret: bytes) -> str:
    """The local-part that bounces of this message come back to; at most 45 octets."""
    return f"{_PREFIX}-{_written(message.bytes)}-{_written(_sign(message, secret))}"


def named_message(localpart: str, secret: bytes) -> UUID | None:
    """The message a return path of ours names; None when it is none of ours."""
    words = localpart.lower().split("-")
    if len(words) != _PARTS or words[0] != _PREFIX:
        return None
    octets, signature = _read(words[1]), _read(words[2])
    if octets is None or signature is None or len(octets) != _UUID:
        return None
    message = UUID(bytes=octets)
    return message if hmac.compare_digest(signature, _sign(message, secret)) else None


def _sign(message: UUID, secret: bytes) -> bytes:
    return hmac.digest(secret, b"pillarbox return path " + message.bytes, "sha256")[:_SIGNATURE]


def _written(octets: bytes) -> str:
    return base64.b32encode(octets).decode().rstrip("=").lower()


def _read(text: str) -> bytes | None:
    try:
        return base64.b32decode(text.upper() + "=" * (-len(text) % 8))
    except ValueError:  # binascii.Error among them; characters beyond ASCII too
        return None
