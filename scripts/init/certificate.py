"""certificate — a certificate that signs itself, so that STARTTLS works from the first minute

Guarantees: pure. The key is ECDSA P-256, which every TLS library takes. Mail servers that check neither DANE nor
    MTA-STS take any certificate; mail clients want one that they can verify.
See: RFC 5280 section 4.1.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LASTS: Final = timedelta(days=825)  # the longest that Apple's clients take
_LONGEST_CN: Final = 64  # characters (RFC 5280, ub-common-name)


class Pair(NamedTuple):
    """A certificate and its private key, in PEM."""

    certificate: bytes
    privatekey: bytes


def self_signed(hostname: str, now: datetime | None = None) -> Pair:
    """A new one for this host."""
    now = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hostname[:_LONGEST_CN])])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # of clients whose clock is late
        .not_valid_after(now + _LASTS)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(hostname)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Pair(
        made.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
