"""test_scram — SCRAM accepts only the right password, for any messages of a client

Guarantees: no message raises anything but ScramRefused; every password and name a client can prepare logs in.
"""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st
from scramp import ScramClient

from shared.security.saslprep import prepared
from shared.security.scram_keys import ScramKeys
from smtpd.login.scram import ScramRefused, ScramServer

KEYS = ScramKeys.make("pencil", b"s" * 16, 4096)
PIECES = st.sampled_from(
    [b"n", b"y", b"p=tls-server-end-point", b",", b"a=", b"n=", b"r=", b"c=", b"p=", b"biws", b"=2C"]
)
MESSAGES = st.lists(PIECES | st.binary(max_size=6), max_size=12).map(b"".join)

# Letters that compose, fold and escape, of scripts from left to right.
WORDS = st.text("abcXYZ019 =,;\u00a0\u00aa\u00df\u00fc\u0308\u2168\u212b\ufb01\u0416\u4e2d", min_size=1, max_size=20)


@given(first=MESSAGES, final=MESSAGES, plus=st.booleans())
@example(first=b"n,,n=user,r=x", final=b"c=biws,r=x,p=" + b64encode(bytes(32)), plus=False)
def test_only_the_right_proof_is_accepted(first: bytes, final: bytes, plus: bool) -> None:  # noqa: FBT001 - drawn
    server = ScramServer(plus=plus, plus_offered=plus, bindings={"tls-server-end-point": b"e" * 32})
    with suppress(ScramRefused):
        server.first(first)
        server.challenge(KEYS)
        server.final(final)
        raise AssertionError(first, final)


@settings(max_examples=40)
@given(name=WORDS, password=WORDS)
def test_any_prepared_name_and_password_authenticate(name: str, password: str) -> None:
    client = ScramClient(["SCRAM-SHA-256"], name, password)
    server = ScramServer(plus=False, plus_offered=False, bindings={})
    assert server.first(client.get_client_first().encode()) == prepared(name)
    client.set_server_first(server.challenge(ScramKeys.make(password, b"s" * 16, 4096)).decode())
    client.set_server_final(server.final(client.get_client_final().encode()).decode())
