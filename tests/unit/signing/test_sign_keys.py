"""test_sign_keys — key files, errors for unusable ones, and the record in DNS"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from queued.signing.keys import UnusableKey, new_key, read_key, zone_line, zone_strings
from tests.fixtures.daemons.signing import key

if TYPE_CHECKING:
    from pathlib import Path

# RFC 8463 appendix A.2: the private key and the record that publishes it.
SEED = b"nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="
PUBLISHED = "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="


def pem(private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, *, password: bytes = b"") -> bytes:
    how = BestAvailableEncryption(password) if password else NoEncryption()
    return private.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, how)


def test_a_key_is_read_as_it_was_written(tmp_path: Path) -> None:
    for ed in (False, True):
        made = new_key(ed25519=ed)
        (tmp_path / "key.pem").write_bytes(made.pem())
        assert read_key(tmp_path / "key.pem").record() == made.record()


def test_a_pkcs_1_key_is_read(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(pem(rsa.generate_private_key(65537, 2048)))
    assert read_key(tmp_path / "key.pem").algorithm == "rsa-sha256"


def test_an_ed25519_seed_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(SEED + b"\n")
    assert read_key(tmp_path / "key").record() == PUBLISHED


def test_an_unusable_key_is_one_line(tmp_path: Path) -> None:
    small = rsa.RSAPrivateNumbers(
        p=(p := 2**521 - 1), q=(q := 2**127 - 1), d=pow(65537, -1, (p - 1) * (q - 1)), dmp1=pow(65537, -1, p - 1),
        dmq1=pow(65537, -1, q - 1), iqmp=pow(q, -1, p), public_numbers=rsa.RSAPublicNumbers(65537, p * q),
    )  # fmt: skip
    whole = rsa.generate_private_key(65537, 2048).private_numbers()
    damaged = rsa.RSAPrivateNumbers(
        p=whole.p, q=whole.q, d=whole.d ^ 4, dmp1=whole.dmp1 ^ 4, dmq1=whole.dmq1, iqmp=whole.iqmp,
        public_numbers=whole.public_numbers,
    )  # fmt: skip
    wrong = {
        "holds a damaged RSA key": pem(damaged.private_key(unsafe_skip_rsa_key_validation=True)),
        "is locked by a password": pem(rsa.generate_private_key(65537, 2048), password=b"secret"),
        "of another kind": pem(ec.generate_private_key(ec.SECP256R1())),
        "holds no private key that can be read": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "holds no private key; allowed": base64.b64encode(b"short"),
        "allowed: 1024 or more": pem(small.private_key(unsafe_skip_rsa_key_validation=True)),
    }
    for reason, octets in wrong.items():
        (tmp_path / "key.pem").write_bytes(octets)
        with pytest.raises(UnusableKey, match=reason) as refused:
            read_key(tmp_path / "key.pem")
        assert str(refused.value).startswith(str(tmp_path / "key.pem"))
        assert "\n" not in str(refused.value)


def test_a_record_is_split_into_dns_strings() -> None:
    record = key("rsa").record()
    strings = re.findall(r'"([^"]*)"', zone_strings(record))
    assert "".join(strings) == record
    assert [len(each) for each in strings] == [255, len(record) - 255]
    assert zone_line("s1", "example.com", "v=DKIM1") == 's1._domainkey.example.com. IN TXT ( "v=DKIM1" )'


def test_signatures_are_those_of_the_algorithm() -> None:
    seed = ed25519.Ed25519PrivateKey.from_private_bytes(base64.b64decode(SEED))
    assert len(seed.sign(b"d" * 32)) == len(key("ed").sign(b"d" * 32).signature) == 64
    assert len(key("rsa").sign(b"d" * 32).signature) == 256
