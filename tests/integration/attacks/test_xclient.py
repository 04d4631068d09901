"""test_xclient — a client behind a proxy gets none of the proxy's own rights

Owns: XCLIENT and PROXY headers without an address; the address and certificate of the proxy give such a client no
    rights.
See: https://www.postfix.org/XCLIENT_README.html; smtpd/envelope/places.py, UNKNOWN.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiosmtpd.proxy_protocol import V2_SIGNATURE
from cryptography import x509

from tests.fixtures.daemons.serving import HOSTNAME, Dialogue, serving
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.peers.certificates import Authority

LOOPBACK = {"networks": ["127.0.0.0/8"]}


def listener(**settings: Any) -> dict[str, Any]:
    return {"listeners": [{"address": "127.0.0.1", "port": 0, "xclient": LOOPBACK, **settings}]}


async def may_relay(client: Dialogue) -> bool:
    assert (await client.say(b"EHLO client.example"))[0].startswith("250")
    assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250")
    reply = await client.ask(b"RCPT TO:<b@example.com>")
    assert reply[:9] in {"250 2.1.5", "554 5.7.1"}
    return reply.startswith("250")


@pytest.mark.parametrize("unknown", [b"[UNAVAILABLE]", b"[TEMPUNAVAIL]", b"[tempunavail]"])
async def test_a_client_of_unknown_address_has_no_relay_rights(factory: Factory, unknown: bytes) -> None:
    """The proxy's own address is in relay.networks and may use XCLIENT."""
    async with serving(factory.uri, server=listener(), relay=LOOPBACK) as port:
        async with Dialogue(port) as client:
            assert (await client.ask(b"XCLIENT NAME=%b ADDR=%b" % (unknown, unknown))).startswith("220")
            assert not await may_relay(client)
        async with Dialogue(port) as client:
            assert (await client.ask(b"XCLIENT ADDR=%b" % unknown)).startswith("220")
            assert (await client.ask(b"XCLIENT ADDR=127.0.0.1")).startswith("550 5.7.0")
        async with Dialogue(port) as client:
            assert (await client.ask(b"XCLIENT ADDR=%b LOGIN=alice HELO=c.example" % unknown)).startswith("220")
            assert (await client.submit()).startswith("250"), "the login comes from the proxy"
    [row] = factory.queue()
    assert (row.senderip, row.saslusername) == ("unknown", "alice")
    assert b"([unknown])" in next(iter(factory.bodies().values())).content


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n",
        V2_SIGNATURE + b"\x21\x00\x00\x00",
        V2_SIGNATURE + b"\x21\x31\x00\xd8" + bytes(216),
    ],
    ids=["unknown", "unknown-with-addresses", "unspecified", "unix"],
)
async def test_a_proxy_header_without_address_gives_no_relay_rights(factory: Factory, header: bytes) -> None:
    server = {"listeners": [{"address": "127.0.0.1", "port": 0, "proxy": LOOPBACK}]}
    async with serving(factory.uri, server=server, relay=LOOPBACK) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(header)
        async with asyncio.timeout(PATIENCE):
            assert (await reader.readline()).startswith(b"220")
            replies = []
            for line in (b"HELO c.example", b"MAIL FROM:<a@sender.example>", b"RCPT TO:<b@example.com>"):
                writer.write(line + b"\r\n")
                replies.append((await reader.readline())[:3])
        writer.close()
    assert replies == [b"250", b"250", b"554"]


async def test_clients_of_unknown_address_share_one_limit(factory: Factory) -> None:
    """Clients from listed networks are exempt, and those without address are not."""
    rates = {"address": {"messages": 1}}
    async with serving(factory.uri, server=listener(), relay=LOOPBACK, rates=rates) as port:
        replies = []
        for _ in range(2):
            async with Dialogue(port) as client:
                assert (await client.ask(b"XCLIENT ADDR=[UNAVAILABLE] HELO=c.example")).startswith("220")
                replies.append((await client.ask(b"MAIL FROM:<a@sender.example>"))[:3])
    assert replies == ["250", "450"]


async def test_the_certificate_of_the_proxy_does_not_authenticate_its_clients(
    factory: Factory, authority: Authority
) -> None:
    """A proxy that passes on the commands of its client also passes on AUTH EXTERNAL."""
    shown = authority.issue("proxy.example")
    tls = {
        **authority.issue(HOSTNAME),
        "client": {
            "ask": "request",
            "authorities": str(authority.file),
            "users": {subject(shown["certificate"]): "proxy"},
        },
    }
    trust = authority.trust()
    trust.load_cert_chain(shown["certificate"], shown["privatekey"])
    users = {"users": {"proxy": "$argon2id$v=19$m=8,t=1,p=1$MDEyMzQ1Njc$MDEyMzQ1Njc"}}
    settings: dict[str, Any] = {
        "server": {**listener(), "tls": tls},
        "relay": {"networks": ["192.0.2.0/24"]},
        "authentication": users,
    }
    async with serving(factory.uri, **settings) as port, Dialogue(port) as client:
        assert (await client.ask(b"STARTTLS")).startswith("220")
        await client.writer.start_tls(trust, server_hostname=HOSTNAME)
        assert any("EXTERNAL" in line for line in await client.say(b"EHLO proxy.example"))
        assert (await client.ask(b"XCLIENT ADDR=127.0.0.9 HELO=c.example")).startswith("220")
        assert not any("EXTERNAL" in line for line in await client.say(b"EHLO c.example"))
        assert (await client.ask(b"AUTH EXTERNAL =")).startswith("504")
        assert not await may_relay(client)


def subject(file: str) -> str:
    return x509.load_pem_x509_certificates(Path(file).read_bytes())[0].subject.rfc4514_string()
