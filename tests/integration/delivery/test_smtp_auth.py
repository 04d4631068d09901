"""test_smtp_auth — we log in to our own smtpd and to Postfix, and never to a host that is not authenticated

See: RFC 4954; queued/smtp/auth.py; docs/how-to/deliver/log-in-to-a-relay.md.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus

import pytest

from queued.deliver import Transport
from queued.equipment import Delivering, Equipment
from queued.outcome.settle import verdict
from shared.config.queued.settings import QueuedConfig
from shared.config.queued.transport import Transport as TransportSettings
from shared.errors import ConfigError
from shared.mail.message import Address
from tests.fixtures.daemons.login import PASSWORD
from tests.fixtures.daemons.routed import Routed, routing
from tests.fixtures.daemons.serving import serving
from tests.fixtures.daemons.submitting import settings
from tests.fixtures.peers.dovecot import PASSWORD as POSTFIX_PASSWORD
from tests.fixtures.peers.fake_dns import FakeDns
from tests.fixtures.peers.postfix import relaying_after_login
from tests.fixtures.peers.scripted_peer import CLOSE, CONTENT, GREETING, HANDSHAKE, HANG, ScriptedPeer
from tests.fixtures.peers.tls_peer import server_context
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard
    from tests.fixtures.peers.certificates import Authority
    from tests.fixtures.peers.dovecot import Dovecot
    from tests.fixtures.peers.postfix import Postfix

ALICE: Final = Address("alice", "sender.example")
OFFERED: Final = b"250-peer.example\r\n250 STARTTLS\r\n"
TLS: Final = (*GREETING, OFFERED, "STARTTLS", b"220 go on\r\n", HANDSHAKE, "EHLO")
SENT: Final = ("MAIL", b"250 OK\r\n", "RCPT", b"250 OK\r\n", "DATA", b"354 go\r\n", CONTENT, b"250 OK\r\n", "QUIT")
SECRET: Final = "correct horse, battery staple"  # noqa: S105 - of tests
TOKEN: Final = "ya29.a0-token_of~tests+/=="  # noqa: S105 - of tests


def written(folder: Path, secret: str = SECRET, name: str = "secret", mode: int = 0o600) -> str:
    file = folder / name
    file.write_text(secret + "\n")
    file.chmod(mode)
    return str(file)


def relay(port: int, authority: Authority, **auth: Any) -> dict[str, Any]:
    """A transport that logs in as alice, by the password in a file unless `auth` says something else."""
    if not {"token", "oauth", "password"} & auth.keys():
        auth["password"] = {"file": written(authority.folder)}
    connection = {"mode": "smarthost", "server": "127.0.0.1", "port": port, "auth": {"user": "alice", **auth}}
    return {"connection": connection, "tls": {"ca": str(authority.file)}}


def offering(*mechanisms: str) -> bytes:
    return b"250-peer.example\r\n250 AUTH " + " ".join(mechanisms).encode() + b"\r\n"


def scripted(authority: Authority, *script: bytes | str) -> ScriptedPeer:
    """A peer with TLS and a certificate of ours for its address."""
    return ScriptedPeer(*TLS, *script, later=server_context(authority.issue("127.0.0.1")))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "PLAIN", "LOGIN", None])
async def test_our_own_smtpd_accepts_the_login(
    factory: Factory, authority: Authority, heard: Heard, mechanism: str | None
) -> None:
    offers = [mechanism] if mechanism else ["PLAIN", "LOGIN", "SCRAM-SHA-256"]
    chosen: dict[str, Any] = {"password": {"file": written(authority.folder, PASSWORD)}}
    if mechanism is not None:
        chosen["mechanisms"] = [mechanism]
    async with (
        serving(factory.uri, **settings(authority, "starttls", offers)) as port,
        routing({}, **relay(port, authority, **chosen)) as routed,
    ):
        result = await routed.send_one("bob@example.com", sender=ALICE)
        assert result.result == "success", result.outcome
        assert (result.spoken.tls or "").endswith("verified")
        again = await routed.send_one("bob@example.com", sender=ALICE)
        assert again.result == "success"
    said = heard.all("authenticate.succeeded")
    assert [(each["user"], each["mechanism"]) for each in said] == [("alice", mechanism or "SCRAM-SHA-256")]


async def test_a_wrong_password_defers_mail_and_is_not_logged(
    factory: Factory, authority: Authority, heard: Heard
) -> None:
    wrong = "not the password at all"
    async with (
        serving(factory.uri, **settings(authority, "starttls")) as port,
        routing({}, **relay(port, authority, password={"file": written(authority.folder, wrong)})) as routed,
    ):
        result = await routed.send_one("bob@example.com")
    outcome = result.outcome
    assert (outcome.kind, outcome.scope, outcome.phase) == ("deferred", "destination", "auth")
    assert (outcome.reply_code, outcome.enhanced) == (535, "4.7.8")
    assert result.result is None
    assert verdict([result]).barred
    [said] = heard.all("auth.refused")
    assert (said["user"], said["transport"]) == ("alice", "default")
    assert wrong not in str(heard.events)
    assert factory.queue() == []


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN", "LOGIN"])
async def test_postfix_accepts_the_login(
    mechanism: str,
    postfix: Callable[..., AbstractAsyncContextManager[Postfix]],
    dovecot: Callable[..., AbstractAsyncContextManager[Dovecot]],
    authority: Authority,
) -> None:
    """Postfix checks passwords with Dovecot and relays only after a login."""
    pair = authority.issue("127.0.0.1")
    async with (
        dovecot(mechanism.lower()) as passwords,
        postfix(**relaying_after_login(pair, passwords.auth)) as peer,
    ):
        password = {"file": written(authority.folder, POSTFIX_PASSWORD)}
        async with routing({}, **relay(peer.port, authority, password=password)) as routed:
            assert (await routed.send_one("bob@example.test")).result == "success"
            assert (await routed.send_one("bob@example.test")).result == "success"
        line = await peer.until_said("sasl_username=alice")
        assert f"sasl_method={mechanism}" in line
        wrong = {"file": written(authority.folder, "wrong", "wrong")}
        async with routing({}, **relay(peer.port, authority, password=wrong)) as routed:
            result = await routed.send_one("bob@example.test")
        assert (result.outcome.kind, result.outcome.reply_code) == ("deferred", 535)
        no_login = relay(peer.port, authority)
        del no_login["connection"]["auth"]
        async with routing({}, **no_login) as routed:
            result = await routed.send_one("bob@example.test")
            # That is how Postfix says it, and it could as well mean the recipient.
            assert (result.outcome.kind, result.outcome.reply_code) == ("failed", 554)


@pytest.mark.parametrize("code", [503, 530, 534, 535, 538])
async def test_a_host_that_requires_a_login_defers_mail(code: int, heard: Heard) -> None:
    refused = f"{code} 5.7.0 log in\r\n".encode()
    script = (*GREETING, b"250 peer.example\r\n", "MAIL", refused, "QUIT", b"221 2.0.0 bye\r\n")
    async with ScriptedPeer(*script) as peer:
        connection = {"mode": "smarthost", "server": "127.0.0.1", "port": peer.port}
        async with routing({}, connection=connection) as routed:
            result = await routed.send_one()
    assert (result.outcome.kind, result.outcome.scope, result.result) == ("deferred", "us", None)
    assert result.next_retry is not None
    [said] = heard.all("auth.refused")
    assert (said["transport"], said["error"]) == ("default", f"{code} 5.7.0 log in")
    assert verdict([result]).barred


async def test_a_host_with_another_certificate_gets_no_password(authority: Authority) -> None:
    """tls.mode is optional, which takes any certificate; for credentials that is not enough."""
    script = (*TLS, offering("PLAIN"), HANG)
    async with ScriptedPeer(*script, later=server_context(authority.issue("other.example"))) as peer:
        async with routing({}, **relay(peer.port, authority)) as routed:
            result = await routed.send_one()
        assert not any(line.startswith(b"AUTH") for line in peer.heard)
    assert (result.outcome.kind, result.outcome.enhanced) == ("deferred", "4.7.5")
    assert "other.example" in result.outcome.text


async def test_a_host_without_tls_gets_no_password(authority: Authority) -> None:
    """An attacker in between may have removed STARTTLS from the reply."""
    async with ScriptedPeer(*GREETING, offering("PLAIN"), HANG) as peer:
        async with routing({}, **relay(peer.port, authority)) as routed:
            result = await routed.send_one()
        assert not any(line.startswith(b"AUTH") for line in peer.heard)
    assert result.outcome.kind == "deferred"
    assert "STARTTLS" in result.outcome.text


@pytest.mark.parametrize(("over", "mode"), [("any_tls", "optional"), ("cleartext", "disabled")])
async def test_unverified_or_plain_logins_work_only_if_configured(authority: Authority, over: str, mode: str) -> None:
    accepted = (offering("PLAIN"), "AUTH PLAIN", b"235 2.7.0 in\r\n", *SENT)
    stranger = server_context(authority.issue("other.example"))
    script = (*GREETING, *accepted) if over == "cleartext" else (*TLS, *accepted)
    async with ScriptedPeer(*script, later=stranger) as peer:
        sections = relay(peer.port, authority, over=over)
        sections["tls"]["mode"] = mode
        async with routing({}, **sections) as routed:
            assert (await routed.send_one()).result == "success"


async def test_auth_offered_only_before_tls_is_ignored(authority: Authority) -> None:
    script: list[bytes | str] = [*GREETING, b"250-peer.example\r\n250-STARTTLS\r\n250 AUTH PLAIN\r\n"]
    script += ["STARTTLS", b"220 go on\r\n", HANDSHAKE, "EHLO", b"250 peer.example\r\n", HANG]
    async with ScriptedPeer(*script, later=server_context(authority.issue("127.0.0.1"))) as peer:
        async with routing({}, **relay(peer.port, authority)) as routed:
            result = await routed.send_one()
        assert not any(line.startswith((b"AUTH", b"MAIL")) for line in peer.heard)
    assert (result.outcome.kind, result.outcome.phase, result.outcome.enhanced) == ("deferred", "auth", "4.7.8")
    assert "does not offer AUTH" in result.outcome.text


async def test_the_strongest_common_mechanism_is_used(authority: Authority) -> None:
    script = (offering("LOGIN", "PLAIN", "CRAM-MD5"), "AUTH PLAIN", b"235 2.7.0 in\r\n", *SENT)
    async with scripted(authority, *script) as peer, routing({}, **relay(peer.port, authority)) as routed:
        assert (await routed.send_one()).result == "success"
        [line] = [line for line in peer.heard if line.startswith(b"AUTH")]
        assert b64decode(line.split()[2]) == b"\0alice\0" + SECRET.encode()


async def test_a_list_restricts_the_mechanisms(authority: Authority) -> None:
    async with scripted(authority, offering("LOGIN", "PLAIN"), HANG) as peer:
        async with routing({}, **relay(peer.port, authority, mechanisms=["SCRAM-SHA-256"])) as routed:
            result = await routed.send_one()
        assert not any(line.startswith(b"AUTH") for line in peer.heard)
    assert result.outcome.text == (
        "cannot log in: host offers AUTH LOGIN PLAIN; allowed by connection.auth: SCRAM-SHA-256"
    )


HOSTILE: Final[dict[str, tuple[str, tuple[bytes | str, ...], str]]] = {
    "challenge of a megabyte": (
        "LOGIN",
        ("AUTH LOGIN", b"334 " + b"QUJD" * 262144 + b"\r\n", HANG),
        "reply line longer",
    ),
    "challenges without end": (
        "LOGIN",
        ("AUTH LOGIN", b"334 VXNlcg==\r\n", "", b"334 UGFzcw==\r\n", "", b"334 TW9yZQ==\r\n", HANG),
        "unexpected extra challenge",
    ),
    "a challenge to PLAIN": ("PLAIN", ("AUTH PLAIN", b"334 TW9yZQ==\r\n", HANG), "unexpected extra challenge"),
    "a challenge that is not base64": ("LOGIN", ("AUTH LOGIN", b"334 User:\r\n", HANG), "not base64"),
    "a challenge of two lines": ("LOGIN", ("AUTH LOGIN", b"334-VXNl\r\n334 cg==\r\n", HANG), "not base64"),
    "in before it was asked": ("LOGIN", ("AUTH LOGIN", b"235 2.7.0 in\r\n", HANG), "before it asked"),
    "scram in one step": ("SCRAM-SHA-256", ("AUTH SCRAM-SHA-256", b"235 2.7.0 in\r\n", HANG), "without proving"),
    "scram with a foreign nonce": (
        "SCRAM-SHA-256",
        ("AUTH SCRAM-SHA-256", b"334 " + b64encode(b"r=abcdef,s=c2FsdHNhbHRzYWx0,i=4096") + b"\r\n", HANG),
        "invalid SCRAM",
    ),
    "scram with rubbish": ("SCRAM-SHA-256", ("AUTH SCRAM-SHA-256", b"334 /////w==\r\n", HANG), "invalid SCRAM"),
    "says nothing": ("PLAIN", ("AUTH PLAIN", HANG), "no reply within"),
    "another reply": ("PLAIN", ("AUTH PLAIN", b"250 2.0.0 hm\r\n", HANG), "unexpected reply"),
}


@pytest.mark.parametrize("how", HOSTILE)
async def test_a_hostile_host_learns_no_secret(authority: Authority, how: str) -> None:
    mechanism, script, text = HOSTILE[how]
    async with scripted(authority, offering(mechanism), *script) as peer:
        sections = relay(peer.port, authority)
        sections["timeout"] = {"auth": "2s"}
        async with routing({}, **sections) as routed, asyncio.timeout(PATIENCE):
            result = await routed.send_one()
        assert not any(line.startswith(b"MAIL") for line in peer.heard)
    assert (result.outcome.kind, result.outcome.scope, result.outcome.uncertain) == ("deferred", "destination", False)
    assert text in result.outcome.text
    assert SECRET not in result.outcome.text


class ScramPeer:
    """A host that accepts any proof, with a wrong proof of its own or an expensive hash. said: later commands."""

    def __init__(self, authority: Authority, iterations: int, signature: bytes) -> None:
        self._context = server_context(authority.issue("127.0.0.1"))
        self._iterations, self._signature = iterations, signature
        self.said: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def heard(reply: bytes) -> bytes:
            writer.write(reply + b"\r\n")
            self.said.append((await reader.readline()).rstrip())
            return self.said[-1]

        await heard(b"220 peer.example")
        first = (await heard(b"250-peer.example\r\n250 AUTH SCRAM-SHA-256")).split()[2]
        nonce = b64decode(first).partition(b"r=")[2] + b"more"
        challenge = b"r=%s,s=%s,i=%d" % (nonce, b64encode(b"salt" * 4), self._iterations)
        await heard(b"334 " + b64encode(challenge))
        if self.said[-1]:
            await heard(b"334 " + b64encode(b"v=" + b64encode(self._signature)))
            if self.said[-1]:
                await heard(b"235 2.7.0 in")
        writer.close()


@pytest.mark.parametrize(
    ("iterations", "text"), [(4096, "does not prove"), (2_000_000_000, "invalid SCRAM"), (1, "invalid SC")]
)
async def test_scram_verifies_the_host(authority: Authority, iterations: int, text: str) -> None:
    host = ScramPeer(authority, iterations, b"x" * 32)
    server = await asyncio.start_server(host.serve, "127.0.0.1", 0, ssl=host._context)
    async with server:
        sections = relay(server.sockets[0].getsockname()[1], authority)
        sections["tls"]["implicit"] = True
        async with routing({}, **sections) as routed, asyncio.timeout(PATIENCE):
            result = await routed.send_one()
    assert result.outcome.kind == "deferred"
    assert text in result.outcome.text
    assert not any(line.startswith(b"MAIL") for line in host.said)


@pytest.mark.parametrize(
    ("mechanism", "says"),
    [
        ("XOAUTH2", f"user=alice\x01auth=Bearer {TOKEN}\x01\x01"),
        ("OAUTHBEARER", f"n,a=alice,\x01host=127.0.0.1\x01port={{port}}\x01auth=Bearer {TOKEN}\x01\x01"),
    ],
)
async def test_a_token_is_sent_in_the_form_of_its_mechanism(authority: Authority, mechanism: str, says: str) -> None:
    token = {"file": written(authority.folder, TOKEN)}
    script = (offering(mechanism, "PLAIN"), f"AUTH {mechanism}", b"235 2.7.0 in\r\n", *SENT)
    async with scripted(authority, *script) as peer, routing({}, **relay(peer.port, authority, token=token)) as routed:
        assert (await routed.send_one()).result == "success"
        [line] = [line for line in peer.heard if line.startswith(b"AUTH")]
    assert b64decode(line.split()[2]).decode() == says.format(port=peer.port)


@pytest.mark.parametrize(("mechanism", "answer"), [("XOAUTH2", b""), ("OAUTHBEARER", b"AQ==")])
async def test_a_refused_token_is_reported_with_its_reason(authority: Authority, mechanism: str, answer: bytes) -> None:
    why = b64encode(json.dumps({"status": "invalid_token", "schemes": "bearer"}).encode())
    script = (offering(mechanism), "AUTH", b"334 " + why + b"\r\n", answer.decode(), b"535 5.7.8 no\r\n", HANG)
    token = {"file": written(authority.folder, TOKEN)}
    async with scripted(authority, *script) as peer, routing({}, **relay(peer.port, authority, token=token)) as routed:
        result = await routed.send_one()
        assert peer.heard[-1] == answer
    assert result.outcome.text == f"cannot log in: host refused our login by {mechanism}: 535 5.7.8 no (invalid_token)"


async def test_a_long_token_is_sent_after_the_challenge(authority: Authority) -> None:
    """RFC 4954 section 4: a command has 512 octets at most."""
    token = "x" * 3000
    script = (offering("XOAUTH2"), "AUTH XOAUTH2", b"334 \r\n", "", b"235 2.7.0 in\r\n", *SENT)
    place = {"file": written(authority.folder, token)}
    async with scripted(authority, *script) as peer, routing({}, **relay(peer.port, authority, token=place)) as routed:
        assert (await routed.send_one()).result == "success"
        assert b"AUTH XOAUTH2" in peer.heard
        assert token.encode() in b64decode(peer.heard[peer.heard.index(b"AUTH XOAUTH2") + 1])


async def test_an_echoed_secret_in_a_reply_is_masked(authority: Authority, heard: Heard) -> None:
    response = b64encode(b"\0alice\0" + SECRET.encode())
    echo = b"535 5.7.8 you said %s, that is %s\r\n" % (response, SECRET.encode())
    script = (offering("PLAIN"), "AUTH PLAIN", echo, HANG)
    async with scripted(authority, *script) as peer, routing({}, **relay(peer.port, authority)) as routed:
        result = await routed.send_one()
    assert result.outcome.text == "cannot log in: host refused our login by PLAIN: 535 5.7.8 you said ***, that is ***"
    everything = str(heard.events)
    for said in (everything, repr(result), repr(routed.transport.settings)):
        assert SECRET not in said
        assert response.decode() not in said


@pytest.mark.parametrize("said", ["syntax error: AUTH PLAIN %s", "syntax error: " + SECRET])
async def test_an_echoed_secret_in_an_invalid_reply_is_masked(authority: Authority, heard: Heard, said: str) -> None:
    response = b64encode(b"\0alice\0" + SECRET.encode()).decode()
    echo = f"{said.replace('%s', response)}\r\n".encode()
    script = (offering("PLAIN"), "AUTH PLAIN", echo, HANG)
    async with scripted(authority, *script) as peer, routing({}, **relay(peer.port, authority)) as routed:
        result = await routed.send_one()
    assert (result.outcome.kind, result.outcome.text) == ("deferred", "not an SMTP reply to AUTH")
    for text in (str(heard.events), repr(result)):
        assert SECRET[:12] not in text
        assert response[:12] not in text


BASE64: Final = b64encode(b"\0alice\0" + SECRET.encode())
#: Echoes of a host, and the stored text.
ECHOES: Final = {
    "raw": (b"550 5.7.1 you said %s\r\n" % SECRET.encode(), "550 5.7.1 you said ***"),
    "base64": (b"550 5.7.1 you said %s!\r\n" % BASE64, "550 5.7.1 you said ***!"),
    "folded": (b"550-5.7.1 you said %s\r\n550 5.7.1 %s!\r\n" % (BASE64[:20], BASE64[20:]), "550 5.7.1 you said ***!"),
    "plus": (b"550 5.7.1 pass=%s&x\r\n" % quote_plus(SECRET).encode(), "550 5.7.1 pass=***&x"),
    "percent": (b"550 5.7.1 pass=%s&x\r\n" % quote(SECRET).encode(), "550 5.7.1 pass=***&x"),
}


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("step", ["MAIL", "dot"])
async def test_an_echoed_secret_after_the_login_is_masked(
    authority: Authority, heard: Heard, step: str, echo: str
) -> None:
    said, stored = ECHOES[echo]
    steps = ("MAIL", said, "QUIT", CLOSE) if step == "MAIL" else (*SENT[:-2], said, "QUIT")
    script = (offering("PLAIN"), "AUTH PLAIN", b"235 2.7.0 in\r\n", *steps)
    async with scripted(authority, *script) as peer, routing({}, **relay(peer.port, authority)) as routed:
        result = await routed.send_one()
    assert result.outcome.text == stored
    shows_no_secret(heard, result)


def shows_no_secret(heard: Heard, *results: object) -> None:
    for text in (str(heard.events), *map(repr, results)):
        for part in (SECRET[:12], quote(SECRET)[:12], quote_plus(SECRET)[:12], BASE64.decode()[:12]):
            assert part not in text


@pytest.mark.parametrize("surplus", [ECHOES[echo][0] for echo in ("raw", "base64", "folded", "plus")])
async def test_an_echoed_secret_in_a_surplus_reply_is_masked(
    authority: Authority, heard: Heard, surplus: bytes
) -> None:
    script = (offering("PLAIN"), "AUTH PLAIN", b"235 2.7.0 in\r\n" + surplus, HANG)
    async with scripted(authority, *script) as peer, routing({}, **relay(peer.port, authority)) as routed:
        result = await routed.send_one()
    assert result.outcome.kind == "deferred"
    assert "***" in result.outcome.text
    shows_no_secret(heard, result)


async def test_an_echoed_secret_in_an_invalid_reply_to_mail_is_masked(authority: Authority, heard: Heard) -> None:
    echo = b"you said %s\r\n" % SECRET.encode()
    script = (offering("PLAIN"), "AUTH PLAIN", b"235 2.7.0 in\r\n", "MAIL", echo, HANG)
    async with scripted(authority, *script) as peer, routing({}, **relay(peer.port, authority)) as routed:
        result = await routed.send_one()
    assert result.outcome.text == "not an SMTP reply: ***"
    shows_no_secret(heard, result)


#: Where a host can say what it knows from an earlier session, before it is given anything in this one.
EARLY: Final[dict[str, Callable[[bytes], tuple[bytes | str, ...]]]] = {
    "greeting": lambda echo: (b"554 5.7.1 " + echo + b"\r\n", "QUIT"),
    "second line of the greeting": lambda echo: (b"554-5.7.1 no\r\n554 5.7.1 " + echo + b"\r\n", "QUIT"),
    "invalid greeting": lambda echo: (b"you said " + echo + b"\r\n", HANG),
    "unexpected reply": lambda echo: (b"220 hello\r\n550 5.7.1 " + echo + b"\r\n", HANG),
    "EHLO": lambda echo: (*GREETING, b"421 4.7.1 " + echo + b"\r\n", CLOSE),
    "HELO": lambda echo: (*GREETING, b"502 what\r\n", "HELO", b"550 5.7.1 " + echo + b"\r\n", "QUIT"),
    "STARTTLS": lambda echo: (*GREETING, OFFERED, "STARTTLS", b"454 4.7.0 " + echo + b"\r\n", HANG),
    "mechanisms": lambda echo: (*TLS, b"250-peer.example\r\n250 AUTH X-" + echo + b"\r\n", HANG),
}


@pytest.mark.parametrize("early", EARLY)
async def test_a_secret_of_an_earlier_session_is_masked_from_the_greeting_on(
    authority: Authority, heard: Heard, early: str
) -> None:
    """The host has the password from a session before; in this one it has not been sent yet."""
    sections = relay(1, authority)
    sections["keepconversation"] = True
    for echo in (SECRET.encode(), BASE64, quote(SECRET).encode()):
        async with ScriptedPeer(*EARLY[early](echo), later=server_context(authority.issue("127.0.0.1"))) as peer:
            sections["connection"]["port"] = peer.port
            async with routing({}, **sections) as routed:
                result = await routed.send_one()
        assert result.outcome.kind == "deferred"
        assert "***" in f"{result.outcome.text} {result.spoken.conversation}"
        text = f"{heard.events} {result}"
        for part in (SECRET, quote(SECRET), b64encode(SECRET.encode()).decode()[:24], BASE64.decode()[12:]):
            assert part not in text


async def test_refreshed_tokens_are_masked_the_old_and_the_new(authority: Authority, heard: Heard) -> None:
    old, new = "ya29.the-first-token-of-all", "ya29.another-token-after-it"
    echo = f"you said {old} and {new}\r\n".encode()
    token = {"file": written(authority.folder, old)}
    begin = (*TLS, offering("OAUTHBEARER"), "AUTH OAUTHBEARER", b"235 2.7.0 in\r\n")
    tls = server_context(authority.issue("127.0.0.1"))
    async with ScriptedPeer(*begin, *SENT, later=tls) as peer:
        sections = relay(peer.port, authority, token=token)
        sections["pooling"] = {"transactions": 1}
        async with routing({}, **sections) as routed:
            assert (await routed.send_one()).result == "success"
            written(authority.folder, new)
            peer.script = (*begin, "MAIL", b"451 4.7.1 " + echo, "QUIT", CLOSE)
            results = [await routed.send_one()]
            peer.script = (b"554 5.7.1 " + echo, "QUIT")
            results.append(await routed.send_one())
    for result in results:
        assert "you said *** and ***" in result.outcome.text
    for said in (old, new):
        assert said not in str(heard.events)


async def test_a_host_cannot_say_a_replaced_password_or_that_of_another_transport(
    authority: Authority, heard: Heard
) -> None:
    """It remembers what it was sent before a reload, and by another transport."""
    first, second, other = "the first password", "the second password", "of the other transport"
    echo = f"554 5.7.1 you said {first}, {second}, {other}\r\n"
    async with ScriptedPeer(echo.encode(), "QUIT") as peer:

        def config(secret: str) -> QueuedConfig:
            bare = {"mode": "smarthost", "server": "127.0.0.1", "port": peer.port}
            auth = {"user": "alice", "password": {"file": written(authority.folder, secret)}}
            another = {"user": "bob", "password": {"file": written(authority.folder, other, "other")}}
            transports = [
                {"id": "default", "connection": {**bare, "auth": auth}, "tls": {"ca": str(authority.file)}},
                {"id": "second", "connection": {**bare, "auth": another}},
                {"id": "none", "connection": bare},
            ]
            return QueuedConfig.model_validate({"transports": transports})

        delivering = Delivering(config(first))
        delivering.use(Equipment(config(second), delivering.equipment))
        for transport in delivering.transports.values():
            routed = Routed(transport, FakeDns({}), delivering.equipment.resolver)
            assert (await routed.send_one()).outcome.text.endswith("you said ***, ***, ***")
        await delivering.close()
    for said in (first, second, other):
        assert said not in str(heard.events)


async def test_a_temporary_login_failure_raises_no_alarm(authority: Authority, heard: Heard) -> None:
    script = (offering("PLAIN"), "AUTH PLAIN", b"454 4.7.0 not now\r\n", "QUIT")
    async with scripted(authority, *script) as peer, routing({}, **relay(peer.port, authority)) as routed:
        result = await routed.send_one()
    assert (result.outcome.kind, result.outcome.scope, result.outcome.enhanced) == ("deferred", "destination", "4.7.0")
    said = verdict([result])
    assert (said.reached, said.barred) == (False, False)
    assert heard.all("auth.refused") == []


async def test_each_host_has_its_own_login_and_the_next_one_is_tried(authority: Authority) -> None:
    refusing = scripted(authority, offering("PLAIN"), "AUTH PLAIN", b"535 5.7.8 no\r\n", HANG)
    taking = scripted(authority, offering("PLAIN"), "AUTH PLAIN", b"235 2.7.0 in\r\n", *SENT)
    async with refusing, taking:
        sections = relay(1, authority)
        bob = {"user": "bob", "password": {"file": written(authority.folder, "of bob", "bob")}}
        sections["connection"]["hosts"] = [
            {"server": "127.0.0.1", "port": refusing.port, "preference": 1},
            {"server": "127.0.0.1", "port": taking.port, "preference": 2, "auth": bob},
        ]
        async with routing({}, **sections) as routed:
            assert (await routed.send_one()).result == "success"
        shown = [line.split()[2] for peer in (refusing, taking) for line in peer.heard if line.startswith(b"AUTH")]
    assert [b64decode(each).split(b"\0")[1] for each in shown] == [b"alice", b"bob"]


async def test_a_host_that_refused_the_login_is_skipped_for_later_messages(
    authority: Authority,
) -> None:
    refusing = scripted(authority, offering("PLAIN"), "AUTH PLAIN", b"535 5.7.8 no\r\n", HANG)
    taking = scripted(authority, offering("PLAIN"), "AUTH PLAIN", b"235 2.7.0 in\r\n", *SENT)
    async with refusing, taking:
        sections = relay(1, authority)
        sections["connection"]["hosts"] = [
            {"server": "127.0.0.1", "port": peer.port, "preference": preference}
            for preference, peer in enumerate((refusing, taking), 1)
        ]
        sections["pooling"] = {"transactions": 1}
        async with routing({}, **sections) as routed:
            assert [(await routed.send_one()).result for _ in range(4)] == ["success"] * 4
        assert (refusing.connections, taking.connections) == (1, 4)


@pytest.mark.parametrize("refusal", ["first", "last", "missing"])
async def test_mail_that_only_our_login_stops_is_not_given_up(authority: Authority, refusal: str) -> None:
    """Without further tries what a host does is final; a refused login is not, also where the other host is down."""
    script = (offering("PLAIN"), "AUTH PLAIN", b"535 5.7.8 no\r\n", HANG)
    async with scripted(authority, *script) as refusing:
        sections = relay(1, authority)
        places = {"first": refusing.port, "down": 1} if refusal == "first" else {"down": 1, "last": refusing.port}
        if refusal == "missing":
            places.popitem()
        sections["connection"]["hosts"] = [
            {"server": "127.0.0.1", "port": port, "preference": at} for at, port in enumerate(places.values())
        ]
        sections["retry"] = {"count": 0}
        async with routing({}, **sections) as routed:
            result = await routed.send_one()
    assert result.outcome.kind == "deferred"
    assert (result.result is None) is (refusal != "missing")
    assert (result.next_retry is None) is (refusal == "missing")


@pytest.mark.parametrize("mode", ["mx", "smarthost"])
async def test_only_a_next_hop_of_ours_keeps_mail_by_wanting_a_login(mode: str) -> None:
    script = (*GREETING, b"250 peer.example\r\n", "MAIL", b"530 5.7.0 log in\r\n", "QUIT", b"221 2.0.0 bye\r\n")
    async with ScriptedPeer(*script) as peer:
        connection: dict[str, Any] = {"mode": mode, "port": peer.port}
        if mode == "smarthost":
            connection["server"] = "127.0.0.1"
        records = {("example.test", "MX"): ["1 mx.example.test."], ("mx.example.test", "A"): ["127.0.0.1"]}
        async with routing(records, connection=connection, retry={"count": 0}) as routed:
            result = await routed.send_one("bob@example.test")
    assert result.outcome.reply_code == 530
    assert result.result == ("expired" if mode == "mx" else None)


async def test_hosts_of_routes_get_no_password(authority: Authority) -> None:
    async with ScriptedPeer(*GREETING, offering("PLAIN"), *SENT) as other:
        sections = {**relay(1, authority), "routes": {"example.test": f"127.0.0.1:{other.port}"}}
        async with routing({}, **sections) as routed:
            assert (await routed.send_one("bob@example.test")).result == "success"
        assert not any(line.startswith(b"AUTH") for line in other.heard)


@pytest.mark.parametrize(
    ("content", "mode", "wrong"),
    [
        ("secret\n", 0o604, "is open to everybody (mode 0604)"),
        ("", 0o600, "holds nothing"),
        ("two\nlines\n", 0o600, "several lines"),
        (None, 0o600, "cannot be read: No such file or directory"),
    ],
)
def test_an_unusable_secret_file_is_a_configuration_error(
    tmp_path: Path, content: str | None, mode: int, wrong: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    auth = {"user": "alice", "password": {"file": str(file)}}
    with pytest.raises(ConfigError) as raised:
        Transport(TransportSettings.model_validate({"connection": {"auth": auth}}), "us.test")
    assert str(raised.value).startswith(f"transports[default].connection.auth: {file} ")
    assert wrong in str(raised.value)


def test_an_unset_variable_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    auth = {"user": "alice", "password": {"environment": "PILLARBOX_TEST_RELAY"}}
    settings = TransportSettings.model_validate({"connection": {"auth": auth}})
    with pytest.raises(ConfigError, match="PILLARBOX_TEST_RELAY is not set"):
        Transport(settings, "us.test")
    monkeypatch.setenv("PILLARBOX_TEST_RELAY", SECRET)
    made = Transport(settings, "us.test")
    assert list(made.logins) == [("127.0.0.1", 25)]
    assert SECRET not in repr(vars(made.settings))
