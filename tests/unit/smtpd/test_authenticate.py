"""test_authenticate — accepted and refused logins; a client cannot distinguish a wrong password from an unknown user

Owns: proofs about smtpd/login/authenticate.py apart from any connection; tests/integration/smtpd/test_clients*.py
    has real clients.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from shared.security.scram_keys import ScramKeys
from smtpd import replies
from smtpd.envelope.client import User
from smtpd.login import passwords
from smtpd.login.authenticate import Authentication, AuthResult
from tests.fixtures.daemons.login import (
    ALICE,
    HASH,
    KEYS,
    PASSWORD,
    POINT,
    Exchange,
    ScramExchange,
    authentication,
    client,
    log_in,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.heard import Heard

ALL = ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "PLAIN", "LOGIN", "EXTERNAL"]
BY_PASSWORD = pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN", "SCRAM-SHA-256", "SCRAM-SHA-256-PLUS"])
COSTS = {"cheap": "m=8,t=1,p=1", "nearly": "m=65536,t=2,p=4", "ours": "m=65536,t=3,p=4", "dear": "m=65536,t=6,p=4"}
CERTIFIED = {"CN=app": "alice", "sha256:" + "ab" * 32: "bob"}


def server(**client: Any) -> list[Any]:
    """Servers that identify users by client certificates."""
    asking = {"ask": "request", "authorities": "a", "users": CERTIFIED, **client}
    return [{"tls": {"certificate": "c", "privatekey": "k", "client": asking}}]


@BY_PASSWORD
async def test_the_right_password_authenticates(tmp_path: Path, heard: Heard, mechanism: str) -> None:
    async with authentication(tmp_path, ALICE, mechanisms=ALL) as auth:
        verdict = await log_in(auth, "alice", PASSWORD, mechanism)
    assert verdict == AuthResult("235 2.7.0 Authentication successful", user=ALICE)
    [said] = heard.all("authenticate.succeeded")
    assert (said["user"], said["mechanism"], said["client"]) == ("alice", mechanism, "192.0.2.1")


@BY_PASSWORD
@pytest.mark.parametrize(
    ("name", "password"), [("alice", "wrong"), ("nobody", PASSWORD), ("off", PASSWORD), ("empty", PASSWORD)]
)
async def test_wrong_unknown_disabled_and_passwordless_users_get_the_same_reply(
    tmp_path: Path, mechanism: str, name: str, password: str
) -> None:
    off = replace(ALICE, name="off", disabled=True)
    async with authentication(tmp_path, ALICE, off, User("empty"), mechanisms=ALL) as auth:
        verdict = await log_in(auth, name, password, mechanism)
    assert verdict == AuthResult("535 5.7.8 Authentication credentials invalid")


async def test_scram_challenges_unknown_users_like_known_ones(tmp_path: Path) -> None:
    """RFC 5802 section 9: a salt of the same length, the same cost, and the same when asked again."""
    async with authentication(tmp_path, ALICE) as auth:
        shown = []
        for name in ("alice", "nobody", "nobody", "someone"):
            exchange = ScramExchange(name, "wrong")
            await auth.authenticate("SCRAM-SHA-256", exchange.first(), exchange.challenge, client())
            shown.append(dict(part.split("=", 1) for part in exchange.challenges[0].decode().split(",")))
    known, nobody, again, someone = shown
    assert (len(known["s"]), known["i"]) == (len(nobody["s"]), nobody["i"])
    assert nobody["s"] == again["s"] != someone["s"]
    async with authentication(tmp_path, ALICE) as auth:  # another process of this installation
        exchange = ScramExchange("nobody", "wrong")
        await auth.authenticate("SCRAM-SHA-256", exchange.first(), exchange.challenge, client())
    assert f"s={nobody['s']}," in exchange.challenges[0].decode()


async def test_unknown_users_get_an_iteration_count_in_use(tmp_path: Path) -> None:
    """Users that have the old number, and one that has the new one."""
    old = replace(ALICE, name="old")
    new = replace(ALICE, name="new", scram=ScramKeys.make(PASSWORD, b"salt" * 4, 5000))
    for users, costs in ([old], {b"i=4096"}), ([old, new], {b"i=4096", b"i=5000"}), ([User("bare")], {b"i=6000"}):
        shown = set()
        async with authentication(tmp_path, *users, iterations=6000, failures={"ban": 0, "delay": "0s"}) as auth:
            for name in [*(user.name for user in users), *(f"stranger{number}" for number in range(30))]:
                exchange = ScramExchange(name, "wrong")
                await auth.authenticate("SCRAM-SHA-256", exchange.first(), exchange.challenge, client())
                shown.add(exchange.challenges[0].split(b",")[2])
        assert shown == costs


async def test_an_unknown_user_costs_as_much_as_a_known_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of an unknown name is that of one of the users, always the same one."""
    checked: list[str] = []

    def verify(known: str, password: str) -> bool:
        checked.append(known.rpartition("$")[0].rpartition("$")[0])
        return False

    async def cost(auth: Authentication, name: str) -> tuple[str, ...]:
        checked.clear()
        await log_in(auth, name, "wrong")
        return tuple(checked)

    monkeypatch.setattr(passwords, "verify", verify)
    hashes = {name: HASH.replace("m=8,t=1,p=1", said) for name, said in COSTS.items()}
    users = [User(name, argon2=known) for name, known in hashes.items()]
    strangers = [f"stranger {number}" for number in range(60)]
    settings: dict[str, Any] = {"failures": {"ban": 0, "delay": "0s"}}
    async with authentication(tmp_path, *users, User("bare"), **settings) as auth:
        of_users = {user.name: await cost(auth, user.name) for user in users}
        of_strangers = {name: await cost(auth, name) for name in [*strangers, "bare"]}
    assert set(of_strangers.values()) == set(of_users.values())
    assert len(of_users["dear"]) == len(of_users["ours"]) == 1
    async with authentication(tmp_path, *users, mechanisms=["PLAIN"], **settings) as auth:  # another process
        assert {name: await cost(auth, name) for name in strangers} == {name: of_strangers[name] for name in strangers}
    async with authentication(tmp_path, User("bare"), **settings) as auth:
        assert await cost(auth, "nobody") == (passwords.OURS,)
    assert passwords.make_hash("x").startswith(f"{passwords.OURS}$"), (
        "hashes made by `pillarbox user` must cost the same"
    )


@pytest.mark.parametrize(
    "response",
    [b"", b"alice", b"\0alice", b"a\0b\0c\0d", b"bob\0alice\0open sesame", b"\0\xff\xfe\0x", b"\0\0x", b"\0\0\0"],
)
async def test_malformed_plain_is_refused(tmp_path: Path, response: bytes) -> None:
    async with authentication(tmp_path, ALICE) as auth:
        verdict = await auth.authenticate("PLAIN", response, Exchange().challenge, client())
    assert verdict == AuthResult(replies.R535_BAD_CREDENTIALS)


async def test_names_and_passwords_have_one_spelling(tmp_path: Path) -> None:
    user = User("grüße", argon2=passwords.make_hash("\u2168"), scram=KEYS)
    async with authentication(tmp_path, user) as auth:
        assert (await log_in(auth, "gru\u0308ße", "IX")).user == user


async def test_the_server_prompts_for_missing_responses(tmp_path: Path) -> None:
    async with authentication(tmp_path, ALICE) as auth:
        plain = Exchange(b"alice\0alice\0" + PASSWORD.encode())
        assert (await auth.authenticate("plain", None, plain.challenge, client())).user == ALICE
        login = Exchange(b"alice", PASSWORD.encode())
        assert (await auth.authenticate("LOGIN", None, login.challenge, client())).user == ALICE
        named = Exchange(PASSWORD.encode())
        assert (await auth.authenticate("LOGIN", b"alice", named.challenge, client())).user == ALICE
        scram = ScramExchange("alice", PASSWORD)
        assert (await auth.authenticate("SCRAM-SHA-256", None, scram.challenge, client())).user == ALICE
    assert plain.challenges == [b""]
    assert login.challenges == [b"Username:", b"Password:"]
    assert named.challenges == [b"Password:"]
    assert scram.challenges[0] == b""
    assert scram.challenges[2].startswith(b"v=")


class GivenUpError(Exception):
    """Raised by a client's `*`."""


async def test_a_client_that_gives_up_ends_the_exchange(tmp_path: Path, heard: Heard) -> None:
    async with authentication(tmp_path, ALICE) as auth:
        with pytest.raises(GivenUpError):
            await auth.authenticate("LOGIN", b"alice", Exchange(GivenUpError()).challenge, client())
    assert not heard.all("authenticate.refused")


@pytest.mark.parametrize("name", ["alice", "nobody"])
async def test_aborting_scram_after_the_salt_is_a_failure(tmp_path: Path, heard: Heard, name: str) -> None:
    """Otherwise an attacker could probe for users at no cost."""
    async with authentication(tmp_path, ALICE, failures={"delay": "0s", "ban": 2}) as auth:
        for _ in range(3):
            with pytest.raises(GivenUpError):
                await auth.authenticate(
                    "SCRAM-SHA-256", f"n,,n={name},r=x".encode(), Exchange(GivenUpError()).challenge, client()
                )
        assert (await log_in(auth, "alice", PASSWORD)).reply.startswith("421")
    assert {said["user"] for said in heard.all("authenticate.refused")} == {name}
    assert len(heard.all("authenticate.banned")) == 1


@pytest.mark.parametrize(
    ("at", "offered"),
    [
        (client(), ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "PLAIN", "LOGIN")),
        (client(tls=False), ()),
    ],
)
async def test_mechanisms_are_offered_under_tls_only(tmp_path: Path, at: Any, offered: tuple[str, ...]) -> None:
    async with authentication(tmp_path, ALICE, mechanisms=ALL) as auth:
        assert auth.mechanisms(at) == offered
    async with authentication(tmp_path) as auth:
        assert auth.mechanisms(at) == (), "no user could log in"


async def test_auth_without_tls_is_refused_unless_allowed(tmp_path: Path) -> None:
    bare = client(tls=False)
    async with authentication(tmp_path, ALICE) as auth:
        assert (await log_in(auth, "alice", PASSWORD, at=bare)).reply.startswith("538 5.7.11 ")
    async with authentication(tmp_path, ALICE, tlsonly=False, mechanisms=ALL) as auth:
        assert auth.mechanisms(bare) == ("SCRAM-SHA-256", "PLAIN", "LOGIN")
        assert (await log_in(auth, "alice", PASSWORD, at=bare)).user == ALICE


@pytest.mark.parametrize("mechanism", ["CRAM-MD5", "", "EXTERNAL", "SCRAM-SHA-256-PLUS"])
async def test_an_unoffered_mechanism_is_504(tmp_path: Path, mechanism: str) -> None:
    async with authentication(tmp_path, ALICE) as auth:
        verdict = await auth.authenticate(mechanism, None, Exchange().challenge, client())
    assert verdict.reply.startswith("504 5.5.4 ")


async def test_plus_binds_to_the_tls_session(tmp_path: Path) -> None:
    async with authentication(tmp_path, ALICE, mechanisms=ALL) as auth:
        other = ScramExchange("alice", PASSWORD, "SCRAM-SHA-256-PLUS", b"m" * len(POINT))
        verdict = await auth.authenticate("SCRAM-SHA-256-PLUS", other.first(), other.challenge, client())
    assert verdict.reply.startswith("535")


async def test_a_certificate_identifies_its_user(tmp_path: Path) -> None:
    at = client()
    assert at.tls is not None
    for facts, name in (
        (replace(at.tls, verified=True, subject="CN=app", fingerprint="sha256:" + "00" * 32), "alice"),
        (replace(at.tls, verified=True, subject="CN=app", fingerprint="sha256:" + "ab" * 32), "bob"),
    ):
        at.tls = facts
        async with authentication(tmp_path, ALICE, User("bob"), servers=server()) as auth:
            assert auth.mechanisms(at)[-1] == "EXTERNAL"
            verdict = await auth.authenticate("EXTERNAL", b"", Exchange().challenge, at)
            assert verdict.user is not None
            assert verdict.user.name == name
            asked = Exchange(name.encode())
            assert (await auth.authenticate("EXTERNAL", None, asked.challenge, at)).user == verdict.user
            assert (await auth.authenticate("EXTERNAL", b"root", Exchange().challenge, at)).reply.startswith("535")
            assert await auth.by_certificate(at) is None, "only where tls.client.relay says so"
    at.tls = replace(at.tls, verified=False)
    async with authentication(tmp_path, ALICE, User("bob"), servers=server()) as auth:
        assert "EXTERNAL" not in auth.mechanisms(at)


async def test_a_server_may_accept_a_certificate_without_auth(tmp_path: Path) -> None:
    at = client()
    assert at.tls is not None
    at.tls = replace(at.tls, verified=True, subject="CN=app", fingerprint="sha256:" + "00" * 32)
    relay = server(relay=True)
    async with authentication(tmp_path, ALICE, servers=relay) as auth:
        assert await auth.by_certificate(at) == ALICE
    async with authentication(tmp_path, replace(ALICE, disabled=True), servers=relay) as auth:
        assert await auth.by_certificate(at) is None
