"""demanded — decides the TLS that a host must offer before it gets mail, without any query

Owns: TlsWanted; the combination of tls.mode, the domain's TLSA records, its MTA-STS policy and REQUIRETLS.
Guarantees: pure. No requirement is ever lowered by another source: the mode is the least, DANE comes before MTA-STS
    (RFC 8461 section 2), the needs of a login and REQUIRETLS are added. A host that may not get this mail is `refused`,
    with the reason.
See: RFC 7672 sections 2.2, 3.1 and 3.2.2; RFC 8461 sections 4 and 5; RFC 8689 section 4.2.1; Postfix's TLS_README.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from queued.tls.mta_sts import names_host

if TYPE_CHECKING:
    from queued.routing.dns_answer import Answer, Tlsa
    from queued.tls.mta_sts import StsPolicy
    from shared.config.queued.login import Over
    from shared.config.queued.transport_tls import Mode, TransportTls

type TlsAsked = Literal["only", "usual", "optional"]  # by a message: REQUIRETLS, nothing, or TLS-Required: No
type Speak = Literal["never", "offered", "must"]
type Proof = Literal["none", "certificate", "dane"]


_BY_MODE: Final[dict[Mode, tuple[Speak, Proof]]] = {
    "disabled": ("never", "none"),
    "optional": ("offered", "none"),
    "optional_verify": ("offered", "certificate"),
    "require": ("must", "none"),
    "require_verify": ("must", "certificate"),
    "dane": ("offered", "none"),  # where there is no TLSA record
}


class TlsWanted(NamedTuple):
    """The TLS requirements for one host. Equal ones may share a connection.

    speak: never, where STARTTLS is offered, or no mail without it. implicit: from the first octet.
    proof: nothing; a certificate that an authority vouches for and that has one of `names`; or one that `tlsa` names.
    server: the host name we ask for (SNI). why: the origin of the demand, for people. refused: why the host gets
    nothing at all, or "".
    """

    speak: Speak = "never"
    proof: Proof = "none"
    implicit: bool = False
    server: str = ""
    names: tuple[str, ...] = ()
    tlsa: tuple[Tlsa, ...] = ()
    why: str = ""
    refused: str = ""

    @property
    def may_be_clear(self) -> bool:
        """Whether clear text is good enough where TLS does not come about."""
        return self.speak == "never" or (self.speak == "offered" and self.proof == "none" and not self.implicit)


CLEAR: Final = TlsWanted()


class HostKnowledge(NamedTuple):
    """The facts about a host.

    domain: whose mail it takes. canonical: what CNAMEs of that lead to, or "". trusted: the host's name was written by
    the operator, or comes from a validated MX answer. tlsa: what DNS said, None when it was not asked or does not
    count; base: about records below which name. policy: the domain's by MTA-STS, or None. login: over
    what our credentials may go to it, None where we have none.
    """

    domain: str = ""
    canonical: str = ""
    trusted: bool = False
    tlsa: Answer[Tlsa] | None = None
    base: str = ""
    policy: StsPolicy | None = None
    requiretls: bool = False
    login: Over | None = None


def decide(settings: TransportTls, host: str, known: HostKnowledge) -> TlsWanted:
    """The TLS requirements for the host of this name."""
    speak, proof = _BY_MODE[settings.mode]
    why = f"tls.mode {settings.mode}"
    names = tuple(settings.names or (host,))
    wanted = TlsWanted(speak, proof, settings.implicit, host, names if proof == "certificate" else (), (), why)
    if speak == "never":
        return wanted._replace(refused="REQUIRETLS, but tls.mode is disabled" if known.requiretls else "")
    wanted = _dane(wanted, known, host) or _mta_sts(wanted, known, host)
    if known.login in {"verified_tls", "any_tls"} and not wanted.refused:
        wanted = _login(wanted, known.login, names)
    return _requiretls(wanted, known, names) if known.requiretls and not wanted.refused else wanted


def _dane(wanted: TlsWanted, known: HostKnowledge, host: str) -> TlsWanted | None:
    """The requirements of the TLSA records; None when there are none that count."""
    if known.tlsa is None:
        return None
    if known.tlsa.state == "failed":
        # RFC 7672 section 2.1.2: an attacker that can suppress the answer must not gain by it.
        return wanted._replace(refused=f"DNS: TLSA of {known.base}: {known.tlsa.text}")
    if known.tlsa.state != "found" or not known.tlsa.secure:
        return None
    usable = tuple(record for record in known.tlsa.records if record.usable)
    if not usable:
        # RFC 7672 section 2.2: the host promises TLS, in words that we do not understand.
        return wanted._replace(speak="must", why="DANE")
    # RFC 7672 section 3.2.2: the names that a certificate below a DANE-TA(2) may have.
    names = tuple(dict.fromkeys(filter(None, (known.base, host, known.domain, known.canonical))))
    return wanted._replace(speak="must", proof="dane", server=known.base, names=names, tlsa=usable, why="DANE")


def _mta_sts(wanted: TlsWanted, known: HostKnowledge, host: str) -> TlsWanted:
    """The same, raised to what an enforced policy asks for (RFC 8461 section 5)."""
    if known.policy is None or known.policy.mode != "enforce":
        return wanted
    if not names_host(known.policy, host):
        return wanted._replace(refused=f"MTA-STS: the policy of {known.domain} does not name {host}")
    return wanted._replace(speak="must", proof="certificate", names=(host,), why="MTA-STS")


def _login(wanted: TlsWanted, over: Over | None, names: tuple[str, ...]) -> TlsWanted:
    """The same, raised to what credentials may go over."""
    if wanted.proof == "none" and over == "verified_tls":
        return wanted._replace(speak="must", proof="certificate", names=names, why="auth.over verified_tls")
    return wanted if wanted.speak == "must" else wanted._replace(speak="must", why=f"auth.over {over}")


def _requiretls(wanted: TlsWanted, known: HostKnowledge, names: tuple[str, ...]) -> TlsWanted:
    """The same, raised to what REQUIRETLS asks for (RFC 8689 section 4.2.1)."""
    by_policy = known.policy is not None and known.policy.mode == "enforce"
    if not (known.trusted or by_policy):
        refused = f"REQUIRETLS: neither DNSSEC nor MTA-STS proves the mail exchangers of {known.domain}"
        return wanted._replace(refused=refused)
    if wanted.proof == "none":
        wanted = wanted._replace(proof="certificate", names=names)
    return wanted._replace(speak="must", why="REQUIRETLS")
