"""test_tls — commands before TLS have no effect under TLS, and required TLS cannot be skipped

Owns: STARTTLS injection, state discarded by STARTTLS, implicit TLS, and handshakes that fail.
See: RFC 3207 section 4.2; RFC 8314 section 3.3; CVE-2011-0411; https://nostarttls.secvuln.info
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from shared.security.key_exchange import set_groups
from tests.fixtures.daemons.serving import HOSTNAME, Dialogue, serving
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard
    from tests.fixtures.peers.certificates import Authority

GROUPS = [
    b"STARTTLS\r\nMAIL FROM:<injected@sender.example>\r\n",
    b"STARTTLS\r\nEHLO injected.example\r\nMAIL FROM:<injected@sender.example>\r\n",
    b"STARTTLS\r\n\x16\x03\x01",
    b"STARTTLS\r\n\r\n",
    b"STARTTLS\r\nx",
]


@pytest.fixture
def tls(authority: Authority) -> dict[str, Any]:
    return {"tls": authority.issue(HOSTNAME)}


def implicit(tls: dict[str, Any], **listener: Any) -> dict[str, Any]:
    return {**tls, "listeners": [{"address": "127.0.0.1", "port": 0, "tls": "implicit", **listener}]}


def offers(client: Dialogue, keyword: str) -> bool:
    return any(line[4:].split()[0] == keyword for line in client.offered)


async def encrypt(client: Dialogue, authority: Authority) -> None:
    await client.writer.start_tls(authority.trust(), server_hostname=HOSTNAME)


@pytest.mark.parametrize("mode", ["reject", "allow"])
@pytest.mark.parametrize("octets", GROUPS)
async def test_octets_after_starttls_end_the_connection(
    factory: Factory, tls: dict[str, Any], octets: bytes, mode: str
) -> None:
    """Also where other pipelining is allowed."""
    server = {**tls, "phases": {"connect": {"unauthpipelining": mode}}}
    async with serving(factory.uri, server=server) as port, Dialogue(port) as client:
        await client.send(octets)
        assert (await client.reply())[0].startswith("554 5.5.0")
        assert await client.ended() == b""


async def test_plain_text_after_220_is_not_a_command(factory: Factory, tls: dict[str, Any], heard: Heard) -> None:
    """The injection in a later packet: TLS gets it, and it is not a handshake."""
    async with serving(factory.uri, server=tls) as port, Dialogue(port) as client:
        assert (await client.ask(b"STARTTLS")).startswith("220 2.0.0")
        await client.send(b"MAIL FROM:<injected@sender.example>\r\n")
        assert b"\r\n" not in await client.ended()  # perhaps an alert of TLS, but no reply
    [failed] = await heard.wait("tls.failed")
    assert failed["client"] == "127.0.0.1"
    assert heard.all("session.error") == []


async def test_tls_discards_the_state_of_the_plain_session(
    factory: Factory, tls: dict[str, Any], authority: Authority
) -> None:
    async with serving(factory.uri, server=tls) as port, Dialogue(port) as client:
        assert offers(client, "STARTTLS")
        assert not offers(client, "REQUIRETLS")
        assert (await client.ask(b"STARTTLS")).startswith("220")
        await encrypt(client, authority)
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("503")  # RFC 3207: EHLO is forgotten
        client.offered = await client.say(b"EHLO client.example")
        assert not offers(client, "STARTTLS")
        assert offers(client, "REQUIRETLS")
        assert (await client.ask(b"STARTTLS")).startswith("503 5.5.1")
        assert (await client.submit()).startswith("250")
    [body] = factory.bodies().values()
    assert b" with ESMTPS" in body.content


@pytest.mark.parametrize(
    "action",
    [
        {"hold": "suspicious", "holdreason": "from {client}"},
        {"metadata": {"origin": "{client}"}},
        {"addheader": {"X-Origin": "{client}"}},
        {"transport": "slow"},
        {"priority": -7},
        {"partition": "apart"},
        {"partitionkey": "sender"},
    ],
    ids=lambda action: next(iter(action)),
)
async def test_policy_decisions_about_the_client_survive_tls(
    factory: Factory, tls: dict[str, Any], authority: Authority, action: dict[str, Any]
) -> None:
    rule = {"id": "at-connect", "phase": "connect", "if": {"client": ["127.0.0.0/8"]}, "then": action}
    async with serving(factory.uri, server=tls, policy={"rules": [rule]}) as port:
        async with Dialogue(port) as client:
            assert (await client.submit()).startswith("250")
        async with Dialogue(port) as client:
            assert (await client.ask(b"STARTTLS")).startswith("220")
            await encrypt(client, authority)
            await client.say(b"EHLO client.example")
            assert (await client.submit()).startswith("250")
    plain, encrypted = (
        (row.status, row.transportid, row.priority, row.metadata, b"X-Origin: 127.0.0.1\r\n" in content)
        for row in factory.queue()
        for content in [bytes(factory.bodies()[row.messages__id].content)]
    )
    assert plain == encrypted
    assert "at-connect" in str(plain[3])


async def test_the_error_count_survives_tls(factory: Factory, tls: dict[str, Any], authority: Authority) -> None:
    async with serving(factory.uri, server={**tls, "limits": {"harderrors": 3}}) as port, Dialogue(port) as client:
        for _ in range(2):
            assert (await client.ask(b"NONSENSE")).startswith("500")
        assert (await client.ask(b"STARTTLS")).startswith("220")
        await encrypt(client, authority)
        assert (await client.ask(b"NONSENSE")).startswith("500")
        assert (await client.reply())[0].startswith("421 4.7.0")


async def test_starttls_within_a_transaction_is_503(factory: Factory, tls: dict[str, Any]) -> None:
    async with serving(factory.uri, server=tls) as port, Dialogue(port) as client:
        await client.envelope()
        assert (await client.ask(b"STARTTLS")).startswith("503 5.5.1")
        assert (await client.data()).startswith("250")


async def test_required_tls_refuses_commands_with_530(
    factory: Factory, tls: dict[str, Any], authority: Authority
) -> None:
    server = {"tls": {**tls["tls"], "required": True}}
    async with serving(factory.uri, server=server) as port, Dialogue(port) as client:
        for command in (b"MAIL FROM:<a@sender.example>", b"AUTH PLAIN", b"VRFY a", b"RSET", b"BDAT 3", b"HELP"):
            assert (await client.ask(command)).startswith("530 5.7.0")
        for command in (b"NOOP", b"EHLO client.example"):
            assert (await client.say(command))[-1].startswith("250")
        assert (await client.ask(b"STARTTLS")).startswith("220")
        await encrypt(client, authority)
        await client.say(b"EHLO client.example")
        assert (await client.submit()).startswith("250")


async def test_implicit_tls_comes_before_the_greeting(
    factory: Factory, tls: dict[str, Any], authority: Authority
) -> None:
    async with serving(factory.uri, server=implicit(tls)) as port:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=authority.trust(), server_hostname=HOSTNAME
        )
        client = Dialogue(port)
        client.reader, client.writer = reader, writer
        assert (await client.reply())[0].startswith("220 ")
        client.offered = await client.say(b"EHLO client.example")
        assert not offers(client, "STARTTLS")
        assert (await client.submit()).startswith("250")
        assert (await client.ask(b"QUIT")).startswith("221")
        assert await client.ended() == b""
        writer.close()
    [body] = factory.bodies().values()
    assert b" with ESMTPS" in body.content


@pytest.mark.parametrize("packets", [1, 2])
async def test_a_proxy_header_comes_before_implicit_tls(
    factory: Factory, tls: dict[str, Any], authority: Authority, packets: int
) -> None:
    """Also when the client's part of the handshake is in the packet of the header."""
    server = implicit(tls, proxy={"networks": ["127.0.0.0/8"]})
    header = b"PROXY TCP4 192.0.2.7 192.0.2.1 4321 25\r\n"
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = authority.trust().wrap_bio(incoming, outgoing, server_hostname=HOSTNAME)
    async with serving(factory.uri, server=server, relay={"networks": ["192.0.2.0/24"]}) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if packets > 1:
            writer.write(header)
            await writer.drain()
            header = b""

        async def until_done(step: Any) -> Any:
            nonlocal header
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    writer.write(header + outgoing.read())
                    header = b""
                    async with asyncio.timeout(PATIENCE):
                        incoming.write(await reader.read(65536))

        await until_done(session.do_handshake)
        assert (await until_done(session.read)).startswith(b"220 ")
        session.write(b"EHLO client.example\r\n")
        assert (await until_done(session.read)).startswith(b"250")
        session.write(b"MAIL FROM:<a@sender.example>\r\nRCPT TO:<b@example.com>\r\n")
        assert (await until_done(session.read)).startswith(b"250 2.1.0 Ok\r\n250 2.1.5")
        writer.close()


async def test_a_plain_client_gets_no_greeting_from_an_implicit_tls_listener(
    factory: Factory, tls: dict[str, Any], heard: Heard
) -> None:
    async with serving(factory.uri, server=implicit(tls)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"EHLO client.example\r\n")
        async with asyncio.timeout(PATIENCE):
            said = await reader.read()
        assert b"220" not in said
        writer.close()
        await heard.wait("tls.failed")


async def test_a_missing_handshake_times_out(factory: Factory, tls: dict[str, Any], heard: Heard) -> None:
    async with serving(factory.uri, server={**tls, "timeout": {"tls": "50ms"}}) as port, Dialogue(port) as client:
        assert (await client.ask(b"STARTTLS")).startswith("220")
        assert await client.ended() == b""
        await heard.wait("tls.failed")
    assert heard.all("session.error") == []


async def test_without_a_certificate_starttls_is_not_offered(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        assert not offers(client, "STARTTLS")
        assert (await client.ask(b"STARTTLS")).startswith("454 4.7.0")
        assert (await client.submit()).startswith("250")


async def test_a_client_cannot_have_a_large_field_computed_in(
    factory: Factory, tls: dict[str, Any], authority: Authority, heard: Heard
) -> None:
    """One such key exchange takes an eighth of a second of ours, and the client need not compute anything."""
    insists = authority.trust()
    assert set_groups(insists, "ffdhe8192")
    async with serving(factory.uri, server=tls) as port:
        async with Dialogue(port) as client:
            assert (await client.ask(b"STARTTLS")).startswith("220")
            with pytest.raises(OSError):  # noqa: PT011 - reset, or an alert of TLS, whichever comes first
                await client.writer.start_tls(insists, server_hostname=HOSTNAME)
        [failed] = await heard.wait("tls.failed")
        assert failed["client"] == "127.0.0.1"
        for group in ("X25519", "P-256", "P-384", "P-521"):
            usual = authority.trust()
            assert set_groups(usual, group)
            async with Dialogue(port) as client:
                assert (await client.ask(b"STARTTLS")).startswith("220")
                await client.writer.start_tls(usual, server_hostname=HOSTNAME)
                await client.say(b"EHLO client.example")
                assert (await client.submit()).startswith("250")
