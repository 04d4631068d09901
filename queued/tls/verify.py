"""verify — checks a host's identity after the TLS handshake

Owns: reading a finished handshake: the names in the certificate, the chain for DANE, and the negotiated session, as
    text.
Guarantees: pure; the time is an argument. `none` never appears here: TLS is established.
See: RFC 9525 section 6; RFC 7672 section 3.2; Postfix smtp_tls_verify_cert_match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from queued.tls.dane import mismatch
from queued.tls.names import fits, same_address, shown

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from datetime import datetime

    from queued.tls.demanded import Proof, TlsWanted

_PROVED: Final[dict[Proof, str]] = {"none": "unverified", "certificate": "verified", "dane": "dane"}
_DER: Final = 2  # _ssl.ENCODING_DER


def disproof(session: ssl.SSLObject, wanted: TlsWanted, now: datetime) -> str | None:
    """Why this is not the host meant, OpenSSL having accepted it; None when it is."""
    if wanted.proof == "dane":
        return mismatch(_chain(session), wanted.tlsa, wanted.names, now)
    if wanted.proof == "certificate":
        return misnamed(session.getpeercert() or {}, wanted.names)
    return None


def negotiated(session: ssl.SSLObject, wanted: TlsWanted) -> str:
    """The session in words, for the attempt row: `TLSv1.3 TLS_AES_256_GCM_SHA384 verified`."""
    cipher = session.cipher()
    return f"{session.version()} {cipher[0] if cipher else 'NULL'} {_PROVED[wanted.proof]}"


def misnamed(certificate: Any, names: Sequence[str]) -> str | None:
    """`certificate` as ssl decodes it. Names in the subject do not count (RFC 9525 section 2)."""
    presented = [(str(kind), str(name)) for kind, name in certificate.get("subjectAltName", ())]
    for kind, name in presented:
        same = {"DNS": fits, "IP Address": same_address}.get(kind)
        if same is not None and any(same(name, wanted) for wanted in names):
            return None
    return f"a certificate for {shown([name for _, name in presented])}, not for {' or '.join(names)}"


def _chain(session: ssl.SSLObject) -> list[bytes]:
    """The certificates the host sent, its own first, in DER."""
    ask = getattr(session, "get_unverified_chain", None)
    if ask is not None:
        return list(ask())
    # Python 3.12 has it one layer below, without a public name.
    inner = session._sslobj  # type: ignore[attr-defined] # noqa: SLF001 - see above
    return [certificate.public_bytes(_DER) for certificate in inner.get_unverified_chain() or ()]
