"""tls — the server's certificates, and the facts of a TLS session about its client

Owns: TLS contexts: one for each certificate, chosen by the name the client asks for (SNI); the facts of a session; the
    only importer of cryptography among the daemons.
Guarantees: a certificate that cannot be used, or has ended, is one clear line, and the old one stays in use; the one in
    use stays after its end, because a reload for another reason, or a process that starts again, must not depend on it.
    Connections keep the context they began with. TLS 1.2 at least, no renegotiation, no password prompt for a key, and
    no key exchange that a client can make expensive.
Raises: ConfigError.
See: RFC 3207, RFC 6066 section 3, RFC 5929 section 4 (tls-server-end-point), RFC 8996.
Bugs: CPython has no exporter, so the channel binding tls-exporter of RFC 9266 is not available (ssl.SSLSocket:
    get_channel_binding knows tls-unique only, which TLS 1.3 does not have); it is used as soon as CPython has it.
"""

from __future__ import annotations

import hashlib
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, cast

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

from shared.errors import ConfigError, cause
from shared.masking import show
from shared.observe import events
from shared.security.key_exchange import without_finite_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from shared.config.smtpd.settings import Server
    from shared.config.smtpd.tls import ClientCertificates, Tls

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ASK: Final = {"never": ssl.CERT_NONE, "request": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class TlsFacts:
    """The facts of a TLS session; `subject` and `fingerprint` are of the client's certificate, if it showed one."""

    version: str  # TLSv1.2, TLSv1.3
    cipher: str
    bits: int
    sni: str | None = None
    subject: str | None = None  # as RFC 4514 writes it
    fingerprint: str | None = None  # sha256: and hexadecimal digits
    verified: bool = False
    bindings: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # channel binding data by type (RFC 5056)


@dataclass(frozen=True, slots=True)
class Served:
    """One certificate we serve; `fingerprint` is SHA-256 of its DER form."""

    file: Path
    fingerprint: bytes
    names: tuple[str, ...]
    begins: datetime
    ends: datetime


class _Session(ssl.SSLObject):
    """A TLS session that remembers which name its client asked for."""

    sni: str | None = None


class _Context(ssl.SSLContext):
    """A context that knows its certificate's channel binding (RFC 5929 section 4)."""

    sslobject_class = _Session
    end_point: bytes | None = None

    @classmethod
    def make(cls, settings: Tls, where: str) -> Self:
        """A server's context by these settings, still without a certificate."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[settings.minimum]
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        if settings.ciphers is not None:
            try:
                context.set_ciphers(settings.ciphers)
            except ssl.SSLError:
                allowed = "a list as in openssl-ciphers(1)"
                raise ConfigError(
                    f"{where}.ciphers: {show(settings.ciphers)} names no cipher; allowed: {allowed}"
                ) from None
        without_finite_fields(context)
        context.verify_mode = _ASK[settings.client.ask]
        if settings.client.authorities is not None:
            # A client's own certificate may be listed in place of its issuer's.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            try:
                context.load_verify_locations(settings.client.authorities)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"{where}.client.authorities: {settings.client.authorities}: {_reason(error)}"
                ) from None
        return context


class Certificates:
    """The certificates of one server, by the name clients ask for."""

    def __init__(self, settings: Tls, where: str) -> None:
        """`where` is the place in the configuration that messages name: servers[0].tls. Raises ConfigError."""
        self._where = where
        self._default, self._by_name, self.served = _load(settings, where)
        self._settings = settings
        self.warn(datetime.now(UTC))

    def context(self) -> ssl.SSLContext:
        """The context to accept with now; connections already open keep theirs."""
        return self._default

    def reload(self, settings: Tls | None = None) -> None:
        """Read all files again, by new settings if given; on ConfigError nothing has changed."""
        wanted = settings or self._settings
        self._default, self._by_name, self.served = _load(wanted, self._where)
        self._settings = wanted
        self.warn(datetime.now(UTC))

    def warn(self, now: datetime) -> None:
        """One warning for each certificate that ends soon, has ended, or has not begun."""
        for served in self.served:
            left = served.ends - now
            if left < self._settings.expirywarning or served.begins > now:
                events.emit(
                    "tls.expires",
                    certificate=served.file,
                    names=", ".join(served.names),
                    days=int(left / timedelta(days=1)),
                    begins=served.begins.isoformat() if served.begins > now else None,
                )


def facts(session: ssl.SSLObject | ssl.SSLSocket) -> TlsFacts:
    """The facts of a session after its handshake; a transport's `get_extra_info("ssl_object")`."""
    cipher, _, bits = session.cipher() or ("", "", 0)
    shown = session.getpeercert(binary_form=True)
    subject = fingerprint = None
    if shown:
        fingerprint = f"sha256:{hashlib.sha256(shown).hexdigest()}"
        subject = x509.load_der_x509_certificate(shown).subject.rfc4514_string()
    return TlsFacts(
        version=session.version() or "",
        cipher=cipher,
        bits=bits,
        sni=getattr(session, "sni", None),
        subject=subject,
        fingerprint=fingerprint,
        # OpenSSL ends a handshake whose certificate it cannot verify, so that what is here was verified.
        verified=shown is not None,
        bindings=MappingProxyType(_bindings(session)),
    )


def certificate_user(facts: TlsFacts | None, settings: ClientCertificates | None) -> str | None:
    """The name of the user of a client's certificate, by fingerprint before subject; None without one."""
    if facts is None or settings is None or not facts.verified:
        return None
    for identity in (facts.fingerprint, facts.subject):
        if identity is not None and identity in settings.users:
            return settings.users[identity]
    return None


def examine(file: Path) -> Served:
    """The certificate in a PEM file: its names and its time. Raises ValueError or OSError."""
    return _served(file, x509.load_pem_x509_certificates(file.read_bytes())[0])


def refuse_ended(servers: Sequence[Server], now: datetime, served: Collection[bytes] = ()) -> frozenset[bytes]:
    """Refuse certificates that have ended, but for those that are `served` already; the fingerprints of all.

    Files that cannot be read are left to Certificates. Raises ConfigError.
    """
    for where, each in _readable(servers):
        if each.ends <= now and each.fingerprint not in served:
            ended = each.ends.strftime("%Y-%m-%d %H:%M:%SZ")
            raise ConfigError(
                f"{where}.certificate: {each.file} expired {ended}; allowed: a certificate that is valid now"
            )
    return certificates_of(servers)


def certificates_of(servers: Sequence[Server]) -> frozenset[bytes]:
    """The fingerprints of the certificates that these servers name, of those that can be read."""
    return frozenset(each.fingerprint for _, each in _readable(servers))


def _readable(servers: Sequence[Server]) -> Iterator[tuple[str, Served]]:
    """Each certificate that can be read, with the place of its section in the configuration."""
    for index, server in enumerate(servers):
        if server.tls is not None:
            place, more = f"servers[{index}].tls", enumerate(server.tls.certificates)
            files = {place: server.tls.certificate} | {
                f"{place}.certificates[{i}]": each.certificate for i, each in more
            }
            for where, file in files.items():
                with suppress(OSError, ValueError):
                    yield where, examine(file)


def _bindings(session: ssl.SSLObject | ssl.SSLSocket) -> dict[str, bytes]:
    found = {}
    end_point = getattr(session.context, "end_point", None)
    if end_point is not None:
        found["tls-server-end-point"] = end_point
    # Not tls-unique: it is safe only with the extended master secret (RFC 7627), which CPython does not report.
    if "tls-exporter" in ssl.CHANNEL_BINDING_TYPES and (exported := session.get_channel_binding("tls-exporter")):
        found["tls-exporter"] = exported
    return found


def _load(settings: Tls, where: str) -> tuple[_Context, Mapping[str, _Context], tuple[Served, ...]]:
    """All contexts of a server: the default one, whose callback finds the others by name."""
    by_name: dict[str, _Context] = {}
    default, first = _context(settings, settings.certificate, settings.privatekey, where)
    served = [first]
    for index, each in enumerate(settings.certificates):
        context, one = _context(settings, each.certificate, each.privatekey, f"{where}.certificates[{index}]")
        served.append(one)
        names = each.names or one.names
        if not names:
            raise ConfigError(
                f"{where}.certificates[{index}]: {each.certificate}: names no host; allowed: one that does, or names"
            )
        for name in names:
            by_name.setdefault(name.lower(), context)
    # The default certificate serves its own names before a wildcard of another can match.
    for name in first.names:
        by_name.setdefault(name.lower(), default)

    def choose(session: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        if name is not None:
            cast("Any", session).sni = name
            session.context = _match(name, by_name) or default

    default.sni_callback = choose
    return default, by_name, tuple(served)


def _match(name: str, by_name: Mapping[str, _Context]) -> _Context | None:
    """RFC 6125 section 6.4: the name itself, or the wildcard of its parent."""
    asked = name.lower().rstrip(".")
    return by_name.get(asked) or by_name.get(f"*.{asked.partition('.')[2]}")


def _context(settings: Tls, certificate: Path, key: Path, where: str) -> tuple[_Context, Served]:
    context = _Context.make(settings, where)
    for name, file in (("certificate", certificate), ("privatekey", key)):
        try:
            file.open("rb").close()
        except OSError as error:
            raise ConfigError(
                f"{where}.{name}: {file}: {cause(error)}; allowed: a file in PEM that smtpd may read"
            ) from None
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
        leaf = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
        served = _served(certificate, leaf)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"{where}: {certificate}, {key}: {_reason(error)}") from None
    context.end_point = _end_point(leaf)
    return context, served


def _end_point(leaf: x509.Certificate) -> bytes | None:
    """The hash of the certificate by the hash of its signature, SHA-256 for MD5 and SHA-1 (RFC 5929 section 4.1)."""
    try:
        algorithm = leaf.signature_hash_algorithm
    except UnsupportedAlgorithm:
        return None
    if algorithm is None:  # Ed25519: RFC 5929 does not say what then
        return None
    name = "sha256" if algorithm.name in {"md5", "sha1"} else algorithm.name
    return hashlib.new(name, leaf.public_bytes(Encoding.DER)).digest()


def _served(file: Path, leaf: x509.Certificate) -> Served:
    try:
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = tuple(extension.value.get_values_for_type(x509.DNSName))
    except x509.ExtensionNotFound:
        names = ()
    fingerprint = hashlib.sha256(leaf.public_bytes(Encoding.DER)).digest()
    return Served(file, fingerprint, names, leaf.not_valid_before_utc, leaf.not_valid_after_utc)


def _refuse_password() -> str:
    """OpenSSL asks only for an encrypted key, and would ask the terminal of a daemon."""
    raise ValueError("the private key is encrypted; allowed: a key without a password, readable by smtpd alone")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the private key is not the certificate's"
        return error.reason or "no certificate and private key in PEM"
    return cause(error)
