"""keys — makes, reads and uses private keys for signatures, and writes their DNS records

Owns: the formats of a key's file, both signature algorithms, and the text of the record that publishes a key.
Guarantees: a key that `read_key` returns can sign. No text made here holds a private key. Several threads may sign with
    one key at once.
Raises: UnusableKey, one line that names the file and its fault.
See: RFC 6376 section 3.6.1 (the record); RFC 8301 (RSA-SHA256, 1024 bits at least); RFC 8463 (Ed25519);
    RFC 1035 section 3.3.14 (TXT, strings of up to 255 octets)
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from shared.errors import PillarboxError

if TYPE_CHECKING:
    from pathlib import Path

type Algorithm = Literal["rsa-sha256", "ed25519-sha256"]

_LEAST_BITS: Final = 1024  # RFC 8301 section 3.2
_BITS: Final = 2048  # RFC 8301 section 3.2: signers SHOULD use at least these
_EXPONENT: Final = 65537
_SEED: Final = 32  # octets of an Ed25519 key, RFC 8032 section 5.1.5
_STRING: Final = 255  # octets, RFC 1035 section 3.3
_SHA256: Final = Prehashed(hashes.SHA256())


class UnusableKey(PillarboxError):
    """A key's file does not hold a key that can sign; the text names the file."""

    exit_status = 78  # EX_CONFIG, sysexits.h


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature as dkimpy expects one."""

    signature: bytes


class PrivateKey:
    """A key that signs."""

    def __init__(self, key: RSAPrivateKey | Ed25519PrivateKey) -> None:
        """For `read_key` and `new_key`."""
        self._key = key
        self.algorithm: Algorithm = "rsa-sha256" if isinstance(key, RSAPrivateKey) else "ed25519-sha256"

    def sign(self, digest: bytes) -> Signature:
        """The signature over a SHA-256 digest (RFC 6376 section 3.3.1, RFC 8463 section 3)."""
        if isinstance(self._key, RSAPrivateKey):
            return Signature(self._key.sign(digest, padding.PKCS1v15(), _SHA256))
        return Signature(self._key.sign(digest))

    def record(self) -> str:
        """The text of the TXT record that publishes the public half (RFC 6376 section 3.6.1, RFC 8463 section 4)."""
        public = self._key.public_key()
        if isinstance(self._key, RSAPrivateKey):
            kind, octets = "rsa", public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        else:
            kind, octets = "ed25519", public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        return f"v=DKIM1; k={kind}; p={base64.b64encode(octets).decode()}"

    def pem(self) -> bytes:
        """The private key as its file holds it: PKCS #8, no password."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def new_key(*, ed25519: bool) -> PrivateKey:
    """A new key: Ed25519, or RSA of 2048 bits."""
    return PrivateKey(Ed25519PrivateKey.generate() if ed25519 else generate_private_key(_EXPONENT, _BITS))


def read_key(path: Path) -> PrivateKey:
    """The key in a file: PEM (PKCS #1 or #8), or the bare seed of an Ed25519 key in base64 as dknewkey writes it."""
    try:
        octets = path.read_bytes()
    except OSError as error:
        raise UnusableKey(f"{path} cannot be read: {error.strerror}") from None
    if b"-----BEGIN" not in octets:
        return _from_seed(octets, path)
    try:
        key = load_pem_private_key(octets, password=None, unsafe_skip_rsa_key_validation=True)
    except TypeError:
        raise UnusableKey(f"{path} is locked by a password; allowed: a key without one") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UnusableKey(f"{path} holds no private key that can be read; allowed: RSA or Ed25519 in PEM") from None
    if isinstance(key, RSAPrivateKey):
        if key.key_size < _LEAST_BITS:
            raise UnusableKey(f"{path} holds an RSA key of {key.key_size} bits; allowed: {_LEAST_BITS} or more")
        if not _signs(key):
            raise UnusableKey(f"{path} holds a damaged RSA key: what it signs does not verify; allowed: a whole key")
        return PrivateKey(key)
    if isinstance(key, Ed25519PrivateKey):
        return PrivateKey(key)
    raise UnusableKey(f"{path} holds a key of another kind; allowed: RSA or Ed25519")


def _signs(key: RSAPrivateKey) -> bool:
    """Whether its signature verifies: a hundred times as fast as OpenSSL's test that its factors are primes."""
    digest = bytes(hashes.SHA256.digest_size)
    try:
        signature = PrivateKey(key).sign(digest).signature
        key.public_key().verify(signature, digest, padding.PKCS1v15(), _SHA256)
    except (ValueError, InvalidSignature, InternalError):
        return False
    return True


def _from_seed(octets: bytes, path: Path) -> PrivateKey:
    try:
        seed = base64.b64decode(octets.strip(), validate=True)
    except binascii.Error:
        seed = b""
    if len(seed) != _SEED:
        raise UnusableKey(f"{path} holds no private key; allowed: RSA or Ed25519 in PEM")
    return PrivateKey(Ed25519PrivateKey.from_private_bytes(seed))


def zone_strings(record: str) -> str:
    """The record as a zone file has it, in strings of at most 255 octets."""
    return " ".join(f'"{record[at : at + _STRING]}"' for at in range(0, len(record), _STRING))


def zone_line(selector: str, domain: str, record: str) -> str:
    """The whole line of a zone file."""
    return f"{selector}._domainkey.{domain}. IN TXT ( {zone_strings(record)} )"
