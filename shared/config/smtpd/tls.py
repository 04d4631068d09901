"""tls — our certificates and those of clients, in smtpd.yaml

Owns: the section `servers[].tls`.
Guarantees: asking for client certificates without naming their issuers is refused, because every client certificate
    would then fail the handshake.
See: Postfix smtpd_tls_cert_file, tls_server_sni_maps, smtpd_tls_ask_ccert, smtpd_tls_CAfile, relay_clientcerts;
    RFC 3207 (STARTTLS), RFC 6066 section 3 (SNI), RFC 8996 (no TLS below 1.2), RFC 4514 (subjects as text).
"""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shared.config.fields import Checked, FilePath, Interval, Section, Text, matching, required, section, setting
from shared.config.smtpd.users import Name
from shared.masking import show

_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")
_SUBJECT = re.compile(r"[A-Za-z][A-Za-z0-9.-]*=.+")


def _identity(value: object) -> str:
    """`sha256:` and 64 hexadecimal digits, colons between them and case as one likes; or a subject."""
    if isinstance(value, str):
        if value.lower().startswith("sha256:"):
            written = "sha256:" + value[7:].replace(":", "").lower()
            if _FINGERPRINT.fullmatch(written):
                return written
        elif _SUBJECT.fullmatch(value):
            return value
    allowed = "sha256: and the certificate's fingerprint, or its subject such as CN=app,O=Example"
    raise ValueError(f"{show(value)} is not the identity of a certificate; allowed: {allowed}")


ServerName = Annotated[
    str, matching(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", "a host name, or *.example.com for one label before it")
]
CertificateIdentity = Annotated[str, Checked(_identity, {"type": "string", "minLength": 4})]


class Certificate(Section):
    """One more certificate, served to clients that ask for one of its names."""

    certificate: FilePath = required("The certificate with its chain, in PEM.", unit="path")
    privatekey: FilePath = required("The private key of the certificate, in PEM.", unit="path")
    names: Annotated[list[ServerName], Field(min_length=1)] | None = setting(
        None,
        "The names (SNI) for which this certificate is used; *.example.com matches one label before example.com.",
        unit="list of host names",
        absent="those in the certificate",
    )


class ClientCertificates(Section):
    """Certificates of clients, and the users that they stand for."""

    ask: Literal["never", "request", "require"] = setting(
        "never",
        "Whether clients are asked for a certificate: never, request (none is fine, a bad one ends the handshake), or "
        "require (Postfix smtpd_tls_ask_ccert, smtpd_tls_req_ccert).",
        unit="word",
    )
    authorities: FilePath | None = setting(
        None,
        "The certificates that clients' certificates must come from, in PEM; a client's own certificate may be here "
        "too (Postfix smtpd_tls_CAfile).",
        unit="path",
        absent="no client certificates",
    )
    users: dict[CertificateIdentity, Name] = setting(
        {},
        "Which user a verified certificate stands for in AUTH EXTERNAL: by sha256: and its fingerprint, or by its "
        "subject as RFC 4514 writes it.",
        unit="user by certificate",
    )
    relay: bool = setting(
        False,
        "Whether such a client is logged in as its user even without AUTH (Postfix permit_tls_clientcerts).",
        unit="true or false",
    )

    @model_validator(mode="after")
    def _knows_issuers(self) -> Self:
        if self.ask != "never" and self.authorities is None:
            raise ValueError(f"ask is {self.ask} but authorities is not given; allowed: both, or ask: never")
        return self


class Tls(Section):
    """The server's certificates; where they are given, STARTTLS is offered (RFC 3207)."""

    certificate: FilePath = required(
        "The certificate with its chain, in PEM, for clients that ask for no name or for an unknown name.", unit="path"
    )
    privatekey: FilePath = required("The private key of the certificate, in PEM.", unit="path")
    certificates: list[Certificate] = setting(
        [],
        "More certificates, chosen by the name the client asks for (Postfix tls_server_sni_maps).",
        unit="list of certificate, privatekey and names",
    )
    minimum: Literal["TLSv1.2", "TLSv1.3"] = setting(
        "TLSv1.2", "The oldest version of TLS to accept (Postfix smtpd_tls_mandatory_protocols).", unit="word"
    )
    ciphers: Text | None = setting(
        None,
        "The ciphers of TLS 1.2, as openssl-ciphers(1) writes them.",
        unit="text",
        absent="OpenSSL's own choice",
    )
    required: bool = setting(
        False,
        "Whether mail is accepted only under TLS; before TLS, MAIL gets 530 (Postfix smtpd_tls_security_level "
        "encrypt).",
        unit="true or false",
    )
    client: ClientCertificates = section(ClientCertificates, "Client certificates, and which users they stand for.")
    expirywarning: Interval = setting(
        "14d", "How long before a certificate expires a warning is logged, at start and at reload.", unit="duration"
    )
