"""test_scram — the server's half of SCRAM-SHA-256 against the RFC's example and an independent client

Guarantees: the other half is scramp's, which shares no line with ours.
"""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from scramp import ScramClient, ScramException

from shared.security.scram_keys import ITERATIONS, ScramKeys
from smtpd.login.scram import ScramRefused, ScramServer, unknown_keys

# RFC 7677 section 3.
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
PROOF = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
KEYS = ScramKeys.make("pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
POINT = {"tls-server-end-point": b"e" * 32}


def plain(nonce: str = NONCE, *, plus_offered: bool = False) -> ScramServer:
    return ScramServer(plus=False, plus_offered=plus_offered, bindings={}, nonce=nonce)


def test_the_example_of_rfc_7677() -> None:
    server = plain()
    assert server.first(FIRST) == "user"
    assert server.challenge(KEYS) == CHALLENGE
    assert server.final(FINAL) == PROOF


def converse(client: ScramClient, server: ScramServer, keys: ScramKeys = KEYS, *, name: str = "user") -> None:
    """A whole exchange; the client checks our proof."""
    assert server.first(client.get_client_first().encode()) == name
    client.set_server_first(server.challenge(keys).decode())
    client.set_server_final(server.final(client.get_client_final().encode()).decode())


@pytest.mark.parametrize("password", ["pencil", "Grüße \u2168", "\u00aa,="])
def test_an_independent_client_authenticates(password: str) -> None:
    keys = ScramKeys.make(password, b"salt" * 4, 4096)
    converse(ScramClient(["SCRAM-SHA-256"], "user", password), plain(), keys)


@pytest.mark.parametrize("name", ["a=b,c", "grüße@münchen.example"])
def test_names_are_unescaped(name: str) -> None:
    converse(ScramClient(["SCRAM-SHA-256"], name, "pencil"), plain(), name=name)


@pytest.mark.parametrize("plus", [True, False])
def test_a_wrong_password_is_refused(plus: bool) -> None:  # noqa: FBT001 - a parameter of the test
    binding = ("tls-server-end-point", POINT["tls-server-end-point"]) if plus else None
    mechanism = "SCRAM-SHA-256-PLUS" if plus else "SCRAM-SHA-256"
    client = ScramClient([mechanism], "user", "pen", channel_binding=binding)
    with pytest.raises(ScramRefused, match="proof"):
        converse(client, ScramServer(plus=plus, plus_offered=plus, bindings=POINT))


def test_plus_binds_to_the_channel() -> None:
    binding = ("tls-server-end-point", POINT["tls-server-end-point"])
    client = ScramClient(["SCRAM-SHA-256-PLUS"], "user", "pencil", channel_binding=binding)
    converse(client, ScramServer(plus=True, plus_offered=True, bindings=POINT))


def test_a_removed_plus_offer_is_detected() -> None:
    """The client sees the certificate of an attacker in between (RFC 5929)."""
    client = ScramClient(["SCRAM-SHA-256-PLUS"], "user", "pencil", channel_binding=("tls-server-end-point", b"m" * 32))
    with pytest.raises(ScramRefused, match="channel bindings differ"):
        converse(client, ScramServer(plus=True, plus_offered=True, bindings=POINT))


def test_a_client_downgraded_from_plus_is_refused() -> None:
    """RFC 5802 section 6: `y` says that we did not offer -PLUS."""
    assert plain().first(b"y,," + FIRST[3:]) == "user"
    with pytest.raises(ScramRefused, match="lost its -PLUS"):
        plain(plus_offered=True).first(b"y,," + FIRST[3:])
    assert plain(plus_offered=True).first(FIRST) == "user"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,n=user,r=x",
        b"x,,n=user,r=x",
        b"n,,n=,r=x",
        b"n,,r=x,n=user",
        b"n,,m=x,n=user,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=user,r=" + b"x" * 257,
        b"n,,n=us\xff,r=x",
        b"n,,n=us\0er,r=x",
        b"n,,n=\xe2\x80\xae,r=x",
        b"n,a=other,n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,,n=user,r=x\n",
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(ScramRefused):
        plain().first(message)


def test_an_equal_authorization_identity_is_accepted() -> None:
    assert plain().first(b"n,a=user,n=user,r=x") == "user"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c=b"),
        (b"c=biws,", b""),
        (b"$k0,", b"$k1,"),
        (b",p=", b",q="),
        (b"p=dHzb", b"p=eHzb"),
        (b"VQ=", b""),
        (b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b",p=eHg="),
        (b",p=", b",x=y\n,p="),
    ],
)
def test_a_changed_final_message_is_refused(old: bytes, new: bytes) -> None:
    server = plain()
    server.first(FIRST)
    server.challenge(KEYS)
    changed = FINAL.replace(old, new)
    assert changed != FINAL
    with pytest.raises(ScramRefused):
        server.final(changed)


def test_plus_requires_a_supported_channel_binding() -> None:
    server = ScramServer(plus=True, plus_offered=True, bindings=POINT)
    with pytest.raises(ScramRefused, match="tls-exporter"):
        server.first(b"p=tls-exporter,,n=user,r=x")
    with pytest.raises(ScramRefused, match="no channel"):
        server.first(b"n,,n=user,r=x")


def test_nonces_are_fresh() -> None:
    first, second = (ScramServer(plus=False, plus_offered=False, bindings={}) for _ in range(2))
    for server in (first, second):
        server.first(FIRST)
    assert first.challenge(KEYS) != second.challenge(KEYS)


def test_an_unknown_user_has_stable_keys_like_a_known_one() -> None:
    known = ScramKeys.make("pencil", b"s" * 16)
    secret = b"x" * 32
    unknown = unknown_keys(secret, "nobody", {ITERATIONS})
    assert (unknown.iterations, len(unknown.salt)) == (known.iterations, len(known.salt))
    assert unknown == unknown_keys(secret, "nobody", {ITERATIONS})
    assert unknown.salt != unknown_keys(secret, "nobody else", {ITERATIONS}).salt
    assert unknown.salt != unknown_keys(b"y" * 32, "nobody", {ITERATIONS}).salt
    client = ScramClient(["SCRAM-SHA-256"], "nobody", "pencil")
    server = plain()
    server.first(client.get_client_first().encode())
    client.set_server_first(server.challenge(unknown_keys(secret, "nobody", {4096})).decode())
    with pytest.raises(ScramRefused, match="proof"):
        server.final(client.get_client_final().encode())


def test_unknown_users_have_iteration_counts_in_use() -> None:
    """Several numbers are in use after a change of the settings; a name keeps its own while it is among them."""
    names = [f"user {number}" for number in range(100)]
    costs = [{name: unknown_keys(b"x" * 32, name, used).iterations for name in names} for used in ({1, 2}, {1, 2, 3})]
    assert set(costs[0].values()) == {1, 2}
    assert set(costs[1].values()) == {1, 2, 3}
    assert all(costs[0][name] == cost for name, cost in costs[1].items() if cost != 3)


def test_the_client_detects_a_server_without_the_keys() -> None:
    client = ScramClient(["SCRAM-SHA-256"], "user", "pencil")
    server = plain()
    server.first(client.get_client_first().encode())
    client.set_server_first(server.challenge(KEYS).decode())
    client.get_client_final()
    with pytest.raises(ScramException):
        client.set_server_final("v=" + b64encode(bytes(32)).decode())


def test_keys_have_a_text_form_and_a_safe_repr() -> None:
    assert ScramKeys.read(str(KEYS)) == KEYS
    # As PostgreSQL writes the same verifier.
    assert str(KEYS) == (
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"
        "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )
    assert b64encode(KEYS.stored).decode() not in repr(KEYS)


@pytest.mark.parametrize(
    ("old", "new"),
    [("SHA-256", "SHA-1"), ("4096", "0"), ("4096", "4095"), ("4096", "99999999"), ("WG5d", "!!!!"), ("WG5d8oPm", "")],
)
def test_invalid_keys_are_refused_and_not_quoted(old: str, new: str) -> None:
    text = str(KEYS).replace(old, new)
    with pytest.raises(ValueError, match="SCRAM keys") as refused:
        ScramKeys.read(text)
    assert "wfPLwcE6" not in str(refused.value)
