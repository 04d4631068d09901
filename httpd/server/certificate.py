"""certificate — the certificate for HTTPS, read again at each reload

Guarantees: one that cannot be used is one clear line, and the old one stays in use. Connections keep what they began
    with. No key exchange that a client can make expensive.
Raises: ConfigError.
See: smtpd/tls.py, which it is made by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.config.smtpd.tls import Tls
from smtpd.tls import Certificates

if TYPE_CHECKING:
    import ssl

    from shared.config.httpd.settings import HttpdTls


class Certificate:
    """The context to accept connections with."""

    def __init__(self, settings: HttpdTls) -> None:
        self._certificates = Certificates(_as_smtpd(settings), "tls")

    def context(self) -> ssl.SSLContext:
        """For a connection that begins now."""
        return self._certificates.context()

    def reload(self, settings: HttpdTls) -> None:
        """Read the files again; on ConfigError nothing has changed."""
        self._certificates.reload(_as_smtpd(settings))


def _as_smtpd(settings: HttpdTls) -> Tls:
    return Tls.model_validate(settings.model_dump())
