"""test_session_login — clients that may send: listed networks, and authenticated users under TLS

Owns: proofs about smtpd/login/authenticate.py, STARTTLS and relaying, with smtplib and with raw commands.
See: RFC 3207, RFC 4616, RFC 4954.
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from base64 import b64encode
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from argon2 import PasswordHasher

from tests.fixtures.daemons.serving import HOSTNAME, MESSAGE, Dialogue, serving
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

STRANGERS = {"networks": ["192.0.2.0/24"]}  # no loopback
HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("open sesame")
USERS = {"users": {"alice": HASH}, "failures": {"delay": "0s"}}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority: trustme.CA, tmp_path: Path) -> dict[str, Any]:
    """The server's section with a certificate for its name."""
    issued = authority.issue_cert(HOSTNAME)
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    return {"tls": {"certificate": str(tmp_path / "certificate.pem"), "privatekey": str(tmp_path / "key.pem")}}


@pytest.fixture
def trust(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@asynccontextmanager
async def encrypted(port: int, trust: ssl.SSLContext) -> AsyncIterator[Dialogue]:
    """A dialogue after STARTTLS and a second EHLO."""
    async with Dialogue(port) as client:
        assert (await client.ask(b"STARTTLS")).startswith("220")
        await client.writer.start_tls(trust, server_hostname=HOSTNAME)
        client.offered = await client.say(b"EHLO client.example")
        yield client


def offers(client: Dialogue, keyword: str) -> bool:
    return any(line[4:].split()[0] == keyword for line in client.offered)


async def test_an_unauthenticated_client_may_not_relay(factory: Factory) -> None:
    async with serving(factory.uri, relay=STRANGERS) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("554 5.7.1")
        assert (await client.ask(b"DATA")).startswith("503")
    assert factory.bodies() == {}


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
async def test_a_user_may_relay_over_tls(
    factory: Factory, tls: dict[str, Any], authority: trustme.CA, mechanism: str
) -> None:
    class Client(smtplib.SMTP):
        """Checks the certificate's name though it connects to an address."""

        def __init__(self, port: int) -> None:
            super().__init__("127.0.0.1", port, local_hostname="client.example", timeout=PATIENCE)
            self._host = HOSTNAME

    def send(port: int) -> None:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        with Client(port) as client:
            client.starttls(context=context)
            client.ehlo()
            client.user, client.password = "alice", "open sesame"
            code, _ = client.auth(mechanism, getattr(client, f"auth_{mechanism.lower()}"))
            assert code == 235
            assert client.sendmail("a@sender.example", ["b@example.com"], MESSAGE) == {}

    async with serving(factory.uri, relay=STRANGERS, authentication=USERS, server=tls) as port:
        await asyncio.to_thread(send, port)
    [row] = factory.queue()
    assert row.saslusername == "alice"
    [body] = factory.bodies().values()
    assert b" with ESMTPSA\r\n" in body.content
    assert b"alice" not in body.content


@pytest.mark.parametrize(
    "response",
    [
        b"\0alice\0wrong",
        b"\0nobody\0open sesame",
        b"\0alice\0",
        b"bob\0alice\0open sesame",
        b"alice",
        b"\0\xff\xfe\0x",
    ],
    ids=["wrong", "unknown", "empty", "other-identity", "no-parts", "not-utf8"],
)
async def test_wrong_credentials_are_535_and_no_login(
    factory: Factory, tls: dict[str, Any], trust: ssl.SSLContext, response: bytes
) -> None:
    async with (
        serving(factory.uri, relay=STRANGERS, authentication=USERS, server=tls) as port,
        encrypted(port, trust) as client,
    ):
        assert offers(client, "AUTH")
        assert (await client.ask(b"AUTH PLAIN " + b64encode(response))).startswith("535 5.7.8")
        await client.ask(b"MAIL FROM:<a@sender.example>")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("554 5.7.1")
        assert (await client.ask(b"AUTH PLAIN")).startswith("503")  # RFC 4954 section 4: not in a transaction
        await client.ask(b"RSET")
        # Failed commands do not ban the client: the right login is accepted.
        assert (await client.ask(b"AUTH PLAIN " + b64encode(b"\0alice\0open sesame"))).startswith("235")
        await client.envelope(b"<b@example.com>")


async def test_auth_before_tls_is_not_offered_and_refused(factory: Factory, tls: dict[str, Any]) -> None:
    async with serving(factory.uri, authentication=USERS, server=tls) as port, Dialogue(port) as client:
        assert offers(client, "STARTTLS")
        assert not offers(client, "AUTH")
        assert (await client.ask(b"AUTH PLAIN " + b64encode(b"\0alice\0open sesame"))).startswith("538")


async def test_auth_is_not_offered_without_users(factory: Factory, tls: dict[str, Any], trust: ssl.SSLContext) -> None:
    async with serving(factory.uri, server=tls) as port, encrypted(port, trust) as client:
        assert not offers(client, "AUTH")
        assert not offers(client, "STARTTLS")


@pytest.mark.parametrize("answer", [b"*", b"no base64"], ids=["abandoned", "unreadable"])
@pytest.mark.parametrize("command", [b"AUTH PLAIN", b"AUTH LOGIN", b"AUTH LOGIN YWxpY2U="])
async def test_an_aborted_login_gets_501_and_the_session_continues(
    factory: Factory, tls: dict[str, Any], trust: ssl.SSLContext, command: bytes, answer: bytes
) -> None:
    """RFC 4954 section 4: the server answers 501 and the next line is a command again."""
    async with serving(factory.uri, authentication=USERS, server=tls) as port, encrypted(port, trust) as client:
        assert (await client.ask(command)).startswith("334")
        assert (await client.ask(answer)).startswith("501")
        assert (await client.ask(b"VRFY marker")).startswith("252")
        assert (await client.submit()).startswith("250")


async def test_octets_after_starttls_end_the_connection(factory: Factory, tls: dict[str, Any]) -> None:
    """The STARTTLS injection of CVE-2011-0411; tests/integration/attacks/test_tls.py has more of it."""
    async with serving(factory.uri, server=tls) as port, Dialogue(port) as client:
        await client.send(b"STARTTLS\r\nMAIL FROM:<injected@sender.example>\r\n")
        assert (await client.reply())[0].startswith("554 5.5.0")
        assert await client.reader.read() == b""
    assert factory.queue() == []
