"""context — OpenSSL's settings for sessions with next hops

Owns: the contexts of one transport: for SMTP one that verifies certificates and one that does not, and one for HTTPS;
    each is made when first needed.
Guarantees: a file of ours that cannot be used is one clear line when the transport is made, not a fault of a host's.
    TLS 1.2 at least, no compression, no key exchange that a host can make expensive, no password prompt for a key.
    Names are compared here for HTTPS only: for SMTP queued.tls.verify does.
Raises: ConfigError from the constructor.
See: ssl.SSLContext; RFC 8996 (no TLS below 1.2); Postfix smtp_tls_CAfile and smtp_tls_cert_file.
Bugs: the files are read once; new ones count after a restart, or a reload that replaces the transport.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final, Literal

from shared.config.queued.transport_tls import TransportTls
from shared.errors import ConfigError, cause
from shared.security.key_exchange import without_finite_fields

if TYPE_CHECKING:
    from queued.tls.demanded import Proof

    type _Use = Literal["unverified", "verified", "https"]

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_USES: Final[tuple[_Use, ...]] = ("unverified", "verified", "https")


class Contexts:
    """The contexts of one transport."""

    def __init__(self, settings: TransportTls | None = None, where: str = "tls") -> None:
        """`where` is the place in the configuration that messages name: transports[default].tls."""
        self._settings = settings or TransportTls()
        self._where = where
        self._made: dict[_Use, ssl.SSLContext] = {}
        if self._settings.ca is not None or self._settings.certificate is not None:
            for use in _USES:
                self._context(use)

    def context(self, proof: Proof) -> ssl.SSLContext:
        """The context for a session that must prove this. What DANE asks is not OpenSSL's to verify."""
        return self._context("verified" if proof == "certificate" else "unverified")

    def https(self) -> ssl.SSLContext:
        """The context for HTTPS, whose protocols (ALPN) an HTTP client may set."""
        return self._context("https")

    def _context(self, use: _Use) -> ssl.SSLContext:
        context = self._made.get(use)
        if context is None:
            context = self._made[use] = self._make(use)
        return context

    def _make(self, use: _Use) -> ssl.SSLContext:
        settings, verifying = self._settings, use != "unverified"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = use == "https"
        context.hostname_checks_common_name = False
        context.verify_mode = ssl.CERT_REQUIRED if verifying else ssl.CERT_NONE
        context.minimum_version = _VERSIONS[settings.minimum]
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        without_finite_fields(context)
        if verifying and settings.ca is not None:
            try:
                context.load_verify_locations(settings.ca)
            except (OSError, ValueError) as error:
                raise ConfigError(f"{self._where}.ca: {settings.ca}: {_reason(error)}") from None
        elif verifying:
            context.load_default_certs()
        if settings.certificate is not None:
            try:
                context.load_cert_chain(settings.certificate, settings.privatekey, password=_no_password)
            except (OSError, ValueError) as error:
                raise ConfigError(f"{self._where}.certificate: {settings.certificate}: {_reason(error)}") from None
        return context


def _no_password() -> str:
    raise ValueError("the private key has a password; allowed: a key without one")


def _reason(error: Exception) -> str:
    """The fault of a file, as text."""
    if isinstance(error, ssl.SSLError):
        return f"not usable: {error.reason or error}; allowed: PEM, and the key that belongs to the certificate"
    return cause(error)
