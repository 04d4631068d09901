"""test_tls_policy — the TLS required of a host, from mode, DANE, MTA-STS and REQUIRETLS"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID, NameOID

from queued.routing.dns_answer import Answer, Tlsa
from queued.tls import dane
from queued.tls.dane import mismatch
from queued.tls.demanded import HostKnowledge, decide
from queued.tls.mta_sts import StsPolicy
from queued.tls.names import covers, fits, same_address
from queued.tls.verify import misnamed
from shared.config.queued.transport_tls import TransportTls

HOST: Final = "mx.example.test"
GOOD: Final = Tlsa(3, 1, 1, bytes(32))
ENFORCED: Final = StsPolicy("enforce", 86400, ("*.example.test",))
ELSEWHERE: Final = StsPolicy("enforce", 86400, ("mx.other.test",))


def asked(mode: str, **known: Any) -> tuple[str, str]:
    """The required TLS, or the name of the policy that refuses; and the required proof."""
    wanted = decide(TransportTls.model_validate({"mode": mode}), HOST, HostKnowledge("example.test")._replace(**known))
    return wanted.refused.partition(":")[0] or wanted.speak, wanted.proof


@pytest.mark.parametrize("mode", ["optional", "optional_verify", "require", "require_verify", "dane"])
def test_an_enforced_policy_raises_every_mode(mode: str) -> None:
    assert asked(mode, policy=ENFORCED) == ("must", "certificate")
    assert asked(mode, policy=ELSEWHERE)[0] == "MTA-STS"


@pytest.mark.parametrize("policy", [ENFORCED._replace(mode="testing"), ELSEWHERE._replace(mode="none"), None])
def test_a_policy_that_is_not_enforced_changes_nothing(policy: StsPolicy | None) -> None:
    assert asked("optional", policy=policy) == ("offered", "none")
    assert asked("require", policy=policy) == ("must", "none")


def test_a_transport_without_tls_ignores_dane_and_mta_sts() -> None:
    assert asked("disabled", policy=ENFORCED) == ("never", "none")


def test_dane_takes_precedence_over_mta_sts() -> None:
    tlsa = Answer("found", (GOOD,), secure=True)
    assert asked("dane", tlsa=tlsa, policy=ELSEWHERE) == ("must", "dane")


@pytest.mark.parametrize(
    "tlsa", [None, Answer("nothing"), Answer("unknown", secure=True), Answer("found", (GOOD,), secure=False)]
)
def test_without_validated_tlsa_records_mta_sts_applies(tlsa: Answer[Tlsa] | None) -> None:
    assert asked("dane", tlsa=tlsa, policy=ENFORCED) == ("must", "certificate")
    assert asked("dane", tlsa=tlsa) == ("offered", "none")


@pytest.mark.parametrize(
    ("record", "usable"),
    [
        (GOOD, True),
        (Tlsa(2, 0, 2, bytes(64)), True),
        (Tlsa(3, 0, 0, b"\x30\x82"), True),
        (Tlsa(0, 1, 1, bytes(32)), False),  # PKIX-TA, RFC 7672 section 3.1.3
        (Tlsa(1, 1, 1, bytes(32)), False),
        (Tlsa(3, 2, 1, bytes(32)), False),
        (Tlsa(3, 1, 3, bytes(32)), False),
        (Tlsa(3, 1, 1, bytes(31)), False),
        (Tlsa(3, 1, 2, bytes(32)), False),
        (Tlsa(3, 1, 0, b""), False),
    ],
)
def test_a_record_is_usable_or_not(record: Tlsa, usable: bool) -> None:  # noqa: FBT001 - a column of the table
    assert record.usable is usable


def test_requiretls_requires_a_verified_host_and_mx_name() -> None:
    assert asked("optional", requiretls=True)[0] == "REQUIRETLS"
    assert asked("optional", requiretls=True, trusted=True) == ("must", "certificate")
    assert asked("optional", requiretls=True, policy=ENFORCED) == ("must", "certificate")
    assert asked("optional", requiretls=True, policy=ENFORCED._replace(mode="testing"))[0] == "REQUIRETLS"
    assert asked("dane", requiretls=True, trusted=True, tlsa=Answer("found", (GOOD,), secure=True)) == ("must", "dane")
    # Unusable records prove nothing (RFC 8689 section 4.2.1), so a certificate is required.
    unusable = Answer("found", (GOOD._replace(usage=1),), secure=True)
    assert asked("dane", requiretls=True, trusted=True, tlsa=unusable) == ("must", "certificate")
    assert asked("disabled", requiretls=True)[0] == "REQUIRETLS, but tls.mode is disabled"


def test_the_names_of_a_hostile_certificate_are_a_short_printable_text() -> None:
    certificate = {"subjectAltName": [("DNS", "\x1b[2J" + "x" * 60_000)] * 100}
    text = misnamed(certificate, ("mx.example.test",))
    assert text is not None
    assert text.isprintable()
    assert len(text) < 2000


@pytest.mark.parametrize(
    ("presented", "host", "covered"),
    [
        ("mx.example.test", "MX.example.test.", True),
        ("*.example.test", "mx.example.test", True),
        ("*.example.test", "a.mx.example.test", False),
        ("*.example.test", "example.test", False),
        ("*.test", "example.test", False),
        ("m*.example.test", "mx.example.test", False),
        ("*.0.0.1", "127.0.0.1", False),
        ("", "", False),
    ],
)
def test_a_name_covers_a_host(presented: str, host: str, covered: bool) -> None:  # noqa: FBT001 - as above
    assert covers(presented, host) is covered


@pytest.mark.parametrize(
    ("presented", "wanted", "fit"),
    [
        ("mx.example.test", ".example.test", True),
        ("a.mx.example.test", ".example.test", True),
        ("*.example.test", ".example.test", True),
        ("example.test", ".example.test", False),
        ("badexample.test", ".example.test", False),
        ("*.test", ".example.test", False),
        ("mx.example.test", "mx.example.test", True),
    ],
)
def test_a_certificate_matches_the_configured_names(presented: str, wanted: str, fit: bool) -> None:  # noqa: FBT001
    assert fits(presented, wanted) is fit


def test_addresses_are_compared_as_addresses() -> None:
    assert same_address("2001:DB8:0:0:0:0:0:1", "2001:db8::1")
    assert not same_address("192.0.2.1", "192.0.2.2")
    assert not same_address("192.0.2.1", "mx.example.test")


@pytest.mark.parametrize("oid", [ExtensionOID.SUBJECT_ALTERNATIVE_NAME, ExtensionOID.BASIC_CONSTRAINTS])
def test_an_unreadable_certificate_fails_verification(oid: x509.ObjectIdentifier) -> None:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mx.example.com")])
    x400 = x509.UnrecognizedExtension(oid, bytes.fromhex("3002a300"))  # an unused kind of name
    made = x509.CertificateBuilder(name, name, key.public_key(), 7, now - timedelta(1), now + timedelta(1))
    der = made.add_extension(x400, critical=False).sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
    record = Tlsa(2, 0, 1, hashlib.sha256(der).digest())
    for chain in ([der], [der, der]):
        assert mismatch(chain, [record], ("mx.example.com",), now) is not None


def chain_by(key: rsa.RSAPrivateKey, count: int) -> list[bytes]:
    """So many authorities, each issued by the next one, all with this key."""
    now = datetime.now(UTC)
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{n}")]) for n in range(count + 1)]
    made = (
        x509.CertificateBuilder()
        .subject_name(names[n])
        .issuer_name(names[n + 1])
        .public_key(key.public_key())
        .serial_number(n + 1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
        for n in range(count)
    )
    return [certificate.public_bytes(Encoding.DER) for certificate in made]


def anchors(chain: list[bytes]) -> list[Tlsa]:
    """A record for each of these certificates."""
    return [Tlsa(2, 0, 1, hashlib.sha256(each).digest()) for each in chain]


def test_each_signature_of_a_chain_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten certificates that are all named it was 45, each of which may take milliseconds."""
    chain, looked = chain_by(rsa.generate_private_key(65537, 2048), 10), list[object]()
    monkeypatch.setattr(dane, "_is_costly", looked.append)
    assert mismatch(chain, anchors(chain), ["other.example"], datetime.now(UTC)) is not None
    assert len(looked) == 9
    assert mismatch(chain, anchors(chain[9:]), [HOST], datetime.now(UTC)) is None


def test_an_authority_whose_key_takes_long_is_none() -> None:
    """A host makes its own authority, with any exponent: verifying by one of 3072 bits takes six milliseconds."""
    usual = rsa.generate_private_key(65537, 2048)
    n = usual.private_numbers()
    long = pow(65537, -1, (n.p - 1) * (n.q - 1))
    key = rsa.RSAPrivateNumbers(
        *(n.p, n.q, 65537, 65537 % (n.p - 1), 65537 % (n.q - 1), n.iqmp), rsa.RSAPublicNumbers(long, n.p * n.q)
    ).private_key(unsafe_skip_rsa_key_validation=True)
    for by, reason in ((usual, None), (key, "a certificate whose issuer has a key that no authority has")):
        chain = chain_by(by, 2)
        assert mismatch(chain, anchors(chain[1:]), [HOST], datetime.now(UTC)) == reason
