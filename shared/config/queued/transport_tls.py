"""transport_tls — TLS to the next hop, in queued.yaml

Owns: the section `transports[].tls`.
Guarantees: half a client certificate, and TLS from the first octet where TLS is disabled, are refused.
See: Postfix smtp_tls_security_level, smtp_tls_CAfile, smtp_tls_mandatory_protocols, smtp_tls_verify_cert_match,
    smtp_tls_cert_file, smtp_tls_wrappermode; Halon's tls.mode; KumoMTA's enable_tls, enable_mta_sts and enable_dane;
    RFC 3207, RFC 7672, RFC 8461.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shared.config.fields import FilePath, Section, matching, setting
from shared.config.queued.routing import Truth

Mode = Literal["disabled", "optional", "optional_verify", "require", "require_verify", "dane"]
PeerName = Annotated[
    str,
    matching(
        r"\.?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", "a host name, or .example.com, which means every name below that one"
    ),
]


class TransportTls(Section):
    """TLS to the next hop."""

    mode: Mode = setting(
        "optional",
        "disabled: no TLS; optional: STARTTLS if it is offered, with any certificate, and clear text if the handshake "
        "fails; optional_verify: as optional, but if STARTTLS is offered the certificate must be valid; require: no "
        "mail without TLS; require_verify: no mail without TLS and a valid certificate; dane: as the domain's TLSA "
        "records require (needs routing.dns.trusted), and optional if it has none (Postfix smtp_tls_security_level, "
        "Halon tls.mode, KumoMTA enable_tls and enable_dane).",
        unit="word",
    )
    implicit: Truth = setting(
        False,
        "Whether TLS starts immediately, without STARTTLS, as on port 465 (Postfix smtp_tls_wrappermode).",
        unit="truth",
    )
    ca: FilePath | None = setting(
        None,
        "The certificates that hosts' certificates must come from, in PEM; MTA-STS policies are fetched with them too "
        "(Postfix smtp_tls_CAfile).",
        unit="path",
        absent="those of the system",
    )
    minimum: Literal["TLSv1.2", "TLSv1.3"] = setting(
        "TLSv1.2", "The oldest version of TLS to accept (Postfix smtp_tls_mandatory_protocols).", unit="word"
    )
    names: Annotated[list[PeerName], Field(min_length=1)] | None = setting(
        None,
        "The certificate must contain one of these names; .example.com is every name below example.com (Postfix "
        "smtp_tls_verify_cert_match).",
        unit="list of host names",
        absent="the host's name in MX or in this file",
    )
    certificate: FilePath | None = setting(
        None,
        "Our client certificate, with its chain, in PEM, for hosts that ask for one (Postfix smtp_tls_cert_file).",
        unit="path",
        absent="no client certificate",
    )
    privatekey: FilePath | None = setting(
        None,
        "The private key of this certificate, in PEM (Postfix smtp_tls_key_file).",
        unit="path",
        absent="no client certificate",
    )
    mtasts: Truth = setting(
        True,
        "Whether MTA-STS policies of domains are enforced, if connection.mode is mx and tls.mode is not disabled "
        "(KumoMTA enable_mta_sts).",
        unit="truth",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.certificate is None) != (self.privatekey is None):
            raise ValueError("certificate or privatekey is given without the other; allowed: both, or neither")
        if self.implicit and self.mode == "disabled":
            raise ValueError("implicit is true but mode is disabled; allowed: another mode, or implicit: false")
        return self
