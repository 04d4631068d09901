"""dane — checks a host's certificates against its TLSA records

Owns: the comparison of a chain with TLSA records; cryptography's second door among the daemons.
Guarantees: pure; the time comes from the caller. An unreadable chain matches no record. For DANE-EE(3) the host's
    own certificate counts, with any names and dates (RFC 7672 section 3.1.1). For DANE-TA(2) a certificate of the
    chain does, which must have issued the host's own, signature by signature, within the dates, by authorities only;
    and the host's own must have one of the names. Each signature is verified once, and none by a key that takes long.
See: RFC 6698 section 2.1; RFC 7671 sections 5.1 and 5.2; RFC 7672 sections 3.1.1, 3.1.2 and 3.2.
Bugs: name constraints in the chain are not checked, nor the name in the subject of a certificate without any other
    (RFC 7672 section 3.2.3). A trust anchor that the record holds whole, and the host does not send, is not found; RFC
    7672 section 3.1.2 asks hosts to send it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from queued.tls.names import fits
from queued.tls.names import shown as names_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from queued.routing.dns_answer import Tlsa

_DANE_TA, _DANE_EE = 2, 3
_LONGEST_CHAIN: Final = 10  # certificates; OpenSSL itself stops at 100
_LARGEST_KEY, _LONGEST_EXPONENT = 8192, 64  # bits of an RSA key; authorities have 4096 and 17
# Exceptions of cryptography for certificates that no honest authority issues.
_UNREADABLE: Final = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
_DIGESTS: Final = {1: hashlib.sha256, 2: hashlib.sha512}  # RFC 6698 section 2.1.3


def mismatch(chain: Sequence[bytes], records: Sequence[Tlsa], names: Sequence[str], now: datetime) -> str | None:
    """Why a host that showed this chain (DER, its own certificate first) is not the one meant; None when it is."""
    try:
        shown = [x509.load_der_x509_certificate(der) for der in chain[:_LONGEST_CHAIN]]
    except _UNREADABLE:
        return "a certificate that cannot be read"
    if not shown:
        return "no certificate"
    if any(record.usage == _DANE_EE and _names(record, shown[0]) for record in records):
        return None
    anchors = [record for record in records if record.usage == _DANE_TA]
    named = [depth for depth, each in enumerate(shown) if any(_names(record, each) for record in anchors)]
    reason: str | None = "a certificate that no TLSA record names"
    broken: str | None = None
    for depth in range(named[-1] + 1 if named else 0):
        broken = broken or _broken(shown, depth, now)  # each signature once, however many certificates are named
        if depth in named:
            reason = broken or _misnamed(shown[0], names)
            if reason is None:
                return None
    return reason


def _names(record: Tlsa, certificate: x509.Certificate) -> bool:
    """Whether the record is of this certificate (RFC 6698 section 2.1)."""
    try:
        if record.selector == 0:
            octets = certificate.public_bytes(Encoding.DER)
        else:
            octets = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except _UNREADABLE:
        return False
    digest = _DIGESTS.get(record.matching)
    return (octets if digest is None else digest(octets).digest()) == record.association


def _broken(chain: Sequence[x509.Certificate], depth: int, now: datetime) -> str | None:
    """Why the certificate at this depth is not valid, or does not vouch for the one before it; None when it does."""
    certificate = chain[depth]
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return f"a certificate that is valid from {begins:%F} to {ends:%F}"
    if depth == 0:
        return None
    if not _is_authority(certificate):
        return "a certificate whose issuer is not an authority"
    try:
        if _is_costly(certificate):
            return "a certificate whose issuer has a key that no authority has"
        chain[depth - 1].verify_directly_issued_by(certificate)
    except (*_UNREADABLE, TypeError, InvalidSignature):
        return "a certificate that the next one of its chain did not issue"
    return None


def _is_costly(certificate: x509.Certificate) -> bool:
    """Whether to verify a signature by this key would take milliseconds: a hostile host's may have any exponent."""
    key = certificate.public_key()
    return isinstance(key, RSAPublicKey) and (
        key.key_size > _LARGEST_KEY or key.public_numbers().e.bit_length() > _LONGEST_EXPONENT
    )


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, *_UNREADABLE):
        return False


def _misnamed(certificate: x509.Certificate, names: Sequence[str]) -> str | None:
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        presented = alternatives.get_values_for_type(x509.DNSName)
    except (x509.ExtensionNotFound, *_UNREADABLE):
        presented = []
    if any(fits(name, wanted) for name in presented for wanted in names):
        return None
    return f"a certificate for {names_of(presented)}, not for {' or '.join(names)}"
