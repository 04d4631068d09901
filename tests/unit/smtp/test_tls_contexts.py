"""test_tls_contexts — no host can have us do a key exchange that takes it nothing and us a second

See: queued/tls/context.py; shared/security/key_exchange.py; tests/integration/attacks/test_tls.py for clients of smtpd.
"""

from __future__ import annotations

import base64
import ssl
from typing import TYPE_CHECKING, Final

import pytest
from trustme import KeyType

from queued.tls.context import Contexts
from shared.security.key_exchange import set_groups
from tests.fixtures.peers.certificates import Authority
from tests.fixtures.peers.tls_peer import server_context

if TYPE_CHECKING:
    from pathlib import Path

HOST: Final = "mx.example.test"
#: A field of 2048 bits and the generator 2, as DER: a hostile host's has 10,000 bits.
FIELD: Final = b"\x30\x82\x01\x08\x02\x82\x01\x01\x00" + b"\xff" * 256 + b"\x02\x01\x02"


@pytest.fixture
def host(tmp_path: Path) -> ssl.SSLContext:
    """Of a host whose certificate goes with every cipher."""
    return server_context(Authority(tmp_path).issue(HOST, key_type=KeyType.RSA))


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> str:
    """The version and cipher of the session; SSLError if there is none."""
    back, forth = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(back, forth, server_hostname=HOST), server.wrap_bio(forth, back, server_side=True)]
    waiting = sides
    while waiting:
        still = []
        for side in waiting:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                still.append(side)
        waiting = still
    return f"{sides[0].version()} {sides[0].cipher()}"


def test_the_groups_of_a_context_can_be_named() -> None:
    """Otherwise the tests below would prove nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert set_groups(context, "P-256")
    assert not set_groups(context, "no-such-group")
    assert set_groups(context, "ffdhe8192")


@pytest.mark.parametrize("proof", ["none", "certificate"])
def test_no_finite_field_is_offered_in_tls_1_2(host: ssl.SSLContext, tmp_path: Path, proof: str) -> None:
    """Its size is the host's choice."""
    field = tmp_path / "field.pem"
    octets = base64.encodebytes(FIELD).decode()
    field.write_text(f"-----BEGIN DH PARAMETERS-----\n{octets}-----END DH PARAMETERS-----\n")
    host.load_dh_params(str(field))
    host.maximum_version = ssl.TLSVersion.TLSv1_2
    host.set_ciphers("DHE-RSA-AES256-GCM-SHA384")
    with pytest.raises(ssl.SSLError, match="NO_SHARED_CIPHER"):
        shake_hands(Contexts().context("none" if proof == "none" else "certificate"), host)


@pytest.mark.parametrize("group", ["ffdhe2048", "ffdhe8192"])
def test_no_finite_field_is_offered_in_tls_1_3(host: ssl.SSLContext, group: str) -> None:
    host.minimum_version = ssl.TLSVersion.TLSv1_3
    assert set_groups(host, group)
    for context in (Contexts().context("none"), Contexts().https()):
        with pytest.raises(ssl.SSLError):
            shake_hands(context, host)


@pytest.mark.parametrize("group", ["X25519", "P-256", "P-384", "P-521"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_hosts_with_any_usual_curve_are_spoken_to(host: ssl.SSLContext, group: str, version: str) -> None:
    host.maximum_version = host.minimum_version = ssl.TLSVersion[version.replace(".", "_")]
    assert set_groups(host, group)
    assert shake_hands(Contexts().context("none"), host).startswith(version)
