"""test_proxy_and_xclient — PROXY and XCLIENT are accepted only from configured networks

Owns: the PROXY protocol, versions 1 and 2, and XCLIENT, from the socket to the rows, and attempts by untrusted clients.
See: haproxy's proxy-protocol.txt; https://www.postfix.org/XCLIENT_README.html
"""

from __future__ import annotations

import asyncio
import struct
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest

from scripts.access.user_store import FileStore
from shared.config.smtpd.users import UserEntry
from smtpd.login.user_sources import FileUsers
from smtpd.login.users import UsersUnavailable
from tests.fixtures.daemons.login import HASH
from tests.fixtures.daemons.serving import HOSTNAME, MESSAGE, Dialogue, serving
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

LOOPBACK = {"networks": ["127.0.0.0/8"]}
OTHERS = {"networks": ["192.0.2.0/24"]}
V2 = b"\r\n\r\n\0\r\nQUIT\n"


def listener(**settings: Any) -> dict[str, Any]:
    return {"listeners": [{"address": "127.0.0.1", "port": 0, **settings}]}


def v2(source: str, command: int = 1, tail: bytes = b"") -> bytes:
    address = ip_address(source)
    addresses = address.packed + address.packed + struct.pack("!HH", 4321, 25)
    family = 0x11 if address.version == 4 else 0x21
    return V2 + struct.pack("!BBH", 0x20 | command, family, len(addresses + tail)) + addresses + tail


async def proxied(port: int, header: bytes, *pieces: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in (header, *pieces):
        writer.write(piece)
        await writer.drain()
    return reader, writer


async def line(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await reader.readline()


@pytest.mark.parametrize(
    ("header", "client"),
    [
        (b"PROXY TCP4 192.0.2.7 192.0.2.1 4321 25\r\n", "192.0.2.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 4321 25\r\n", "2001:db8::7"),
        (v2("192.0.2.7"), "192.0.2.7"),
        (v2("2001:db8::7"), "2001:db8::7"),
        (v2("192.0.2.7", tail=b"\x04\0\x03abc"), "192.0.2.7"),
        (v2("192.0.2.7", command=0), "127.0.0.1"),
    ],
)
async def test_a_trusted_proxy_gives_the_client_address(factory: Factory, header: bytes, client: str) -> None:
    relay = {"networks": ["192.0.2.0/24", "2001:db8::/32", "127.0.0.0/8"]}
    async with serving(factory.uri, server=listener(proxy=LOOPBACK), relay=relay) as port:
        for cut in (0, 1, 6, len(header) - 1):
            reader, writer = await proxied(port, header[:cut], header[cut:])
            assert (await line(reader)).startswith(b"220 ")
            envelope = b"MAIL FROM:<a@sender.example>\r\nRCPT TO:<b@example.com>\r\nDATA\r\n"
            for group, replies in ((b"HELO c.example\r\n", 1), (envelope, 3), (MESSAGE + b".\r\nQUIT\r\n", 2)):
                writer.write(group)
                assert all([(await line(reader))[:1] in b"23" for _ in range(replies)])
            writer.close()
    assert {row.senderip for row in factory.queue()} == {client}


@pytest.mark.parametrize(
    "header",
    [
        b"EHLO client.example\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 4321\r\n",
        b"PROXY TCP4 nonsense 192.0.2.1 4321 25\r\n",
        b"PROXY TCP4 192.0.2.7 2001:db8::1 4321 25\r\n",
        b"PROXY TCP4 " + b"1" * 200 + b"\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 4321 25\n" + b"x" * 100,
        V2 + b"\x31\x11\0\0",
        V2 + b"\x21\x11\xff\xff" + bytes(600),
    ],
)
async def test_an_invalid_proxy_header_ends_the_connection(factory: Factory, header: bytes) -> None:
    async with serving(factory.uri, server=listener(proxy=LOOPBACK)) as port:
        reader, writer = await proxied(port, header)
        assert (await line(reader)).startswith(b"554 5.7.0")
        assert await line(reader) == b""
        writer.close()


async def test_a_silent_proxy_times_out(factory: Factory) -> None:
    settings = listener(proxy={**LOOPBACK, "timeout": "50ms"})
    async with serving(factory.uri, server=settings) as port:
        reader, writer = await proxied(port, b"PROXY TCP4 ")
        assert (await line(reader)).startswith(b"554 5.7.0")
        writer.close()


async def test_a_proxy_cut_off_as_silent_gets_no_further_reply(factory: Factory, heard: Heard) -> None:
    """The time for the header is over while the client still has time to read why it is cut off."""
    settings = {**listener(proxy={**LOOPBACK, "timeout": "200ms"}), "timeout": {"idle": "100ms"}}
    async with serving(factory.uri, server=settings) as port:
        reader, writer = await proxied(port, b"PROXY TCP4 ")
        assert (await line(reader)).startswith(b"421 4.4.2")
        await heard.wait("session.closed")  # the client did not hang up
        assert await line(reader) == b""
        writer.close()
    assert heard.all("session.error") == []


@pytest.mark.parametrize("header", [b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n", v2("127.0.0.1")])
async def test_a_proxy_header_from_an_untrusted_client_is_early_talk(factory: Factory, header: bytes) -> None:
    settings = {**listener(proxy=OTHERS), "phases": {"connect": {"greetdelay": "5s"}}}
    async with serving(factory.uri, server=settings) as port:
        reader, writer = await proxied(port, header)
        assert (await line(reader)).startswith(b"554 5.5.1")
        writer.close()


async def test_a_client_behind_a_proxy_has_no_relay_rights_of_the_proxy(factory: Factory) -> None:
    """The open relay of a proxy in relay.networks."""
    async with serving(factory.uri, server=listener(proxy=LOOPBACK)) as port:
        reader, writer = await proxied(port, b"PROXY TCP4 198.51.100.9 192.0.2.1 4321 25\r\n")
        assert (await line(reader)).startswith(b"220")
        writer.write(b"HELO c.example\r\n")
        assert (await line(reader)).startswith(b"250")
        writer.write(b"MAIL FROM:<a@sender.example>\r\nRCPT TO:<b@example.com>\r\n")
        assert (await line(reader)).startswith(b"250")
        assert (await line(reader)).startswith(b"554 5.7.1")
        writer.close()


async def test_octets_after_the_proxy_header_are_early_talk(factory: Factory) -> None:
    async with serving(factory.uri, server=listener(proxy=LOOPBACK)) as port:
        reader, writer = await proxied(port, b"PROXY TCP4 192.0.2.7 192.0.2.1 4321 25\r\nEHLO x\r\n")
        assert (await line(reader)).startswith(b"554 5.5.1")
        writer.close()


async def test_xclient_sets_the_client_address_and_helo(factory: Factory) -> None:
    settings = listener(xclient=LOOPBACK)
    relay = {"networks": ["192.0.2.0/24"]}
    async with serving(factory.uri, server=settings, relay=relay) as port, Dialogue(port) as client:
        assert any(line[4:].startswith("XCLIENT NAME ADDR PORT PROTO HELO LOGIN") for line in client.offered)
        reply = await client.ask(
            b"XCLIENT ADDR=192.0.2.9 NAME=client.example.net PORT=77 PROTO=ESMTP HELO=x+2Dy.example"
        )
        assert reply.startswith(f"220 {HOSTNAME}")
        assert (await client.say(b"EHLO other.example"))[0].startswith("250")
        assert (await client.submit()).startswith("250")
    [row] = factory.queue()
    assert (row.senderip, row.senderhelo) == ("192.0.2.9", "other.example")


async def test_xclient_login_sets_and_removes_the_user(factory: Factory) -> None:
    async with serving(factory.uri, server=listener(xclient=LOOPBACK), relay=OTHERS) as port, Dialogue(port) as client:
        assert (await client.ask(b"XCLIENT LOGIN=alice HELO=c.example")).startswith("220")
        assert (await client.submit()).startswith("250")
        assert (await client.ask(b"XCLIENT LOGIN=[UNAVAILABLE] HELO=c.example")).startswith("220")
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("554 5.7.1")
    [row] = factory.queue()
    assert row.saslusername == "alice"


@pytest.fixture
def users(tmp_path: Path) -> dict[str, Any]:
    """Users of a file, by the section `authentication`."""
    store = FileStore(tmp_path / "users.yaml")
    store.add("alice", UserEntry.model_validate({"argon2": HASH, "senders": ["alice@example.com"]}))
    store.add("off", UserEntry.model_validate({"argon2": HASH, "disabled": True}))
    return {"file": str(tmp_path / "users.yaml")}


async def test_xclient_login_keeps_the_restrictions_of_the_user(factory: Factory, users: Any) -> None:
    settings = listener(xclient=LOOPBACK)
    async with (
        serving(factory.uri, server=settings, relay=OTHERS, authentication=users) as port,
        Dialogue(port) as client,
    ):
        assert (await client.ask(b"XCLIENT LOGIN=alice HELO=c.example")).startswith("220")
        assert (await client.ask(b"MAIL FROM:<ceo@example.com>")).startswith("553 5.7.1")
        assert (await client.submit(sender=b"<alice@example.com>")).startswith("250")
        assert (await client.ask(b"XCLIENT LOGIN=somebody HELO=c.example")).startswith("220")
        assert (await client.submit(sender=b"<ceo@example.com>")).startswith("250")
    assert [row.saslusername for row in factory.queue()] == ["alice", "somebody"]


async def test_xclient_login_of_a_disabled_user_changes_nothing(factory: Factory, users: Any) -> None:
    settings = listener(xclient=LOOPBACK)
    async with (
        serving(factory.uri, server=settings, relay=OTHERS, authentication=users) as port,
        Dialogue(port) as client,
    ):
        assert (await client.ask(b"XCLIENT ADDR=192.0.2.9 HELO=c.example LOGIN=off")).startswith("550 5.7.0")
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("554 5.7.1")


async def test_xclient_login_with_unavailable_users_is_454(
    factory: Factory, users: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(_users: FileUsers, _name: str) -> None:
        raise UsersUnavailable

    monkeypatch.setattr(FileUsers, "find", find)
    settings = listener(xclient=LOOPBACK)
    async with serving(factory.uri, server=settings, authentication=users) as port, Dialogue(port) as client:
        assert (await client.ask(b"XCLIENT LOGIN=alice")).startswith("454 4.7.0")
        assert (await client.submit()).startswith("250")
    [row] = factory.queue()
    assert row.saslusername is None


async def test_xclient_from_an_unlisted_client_changes_nothing(factory: Factory) -> None:
    async with serving(factory.uri, server=listener(xclient=OTHERS), relay=OTHERS) as port, Dialogue(port) as client:
        assert not any("XCLIENT" in line for line in client.offered)
        assert (await client.ask(b"XCLIENT ADDR=192.0.2.9 LOGIN=alice")).startswith("550 5.7.0")
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250")
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("554 5.7.1")


async def test_a_client_loses_the_right_to_xclient_with_its_address(factory: Factory) -> None:
    async with serving(factory.uri, server=listener(xclient=LOOPBACK)) as port, Dialogue(port) as client:
        assert (await client.ask(b"XCLIENT ADDR=198.51.100.9")).startswith("220")
        assert (await client.ask(b"XCLIENT ADDR=127.0.0.1")).startswith("550 5.7.0")


@pytest.mark.parametrize(
    "attributes",
    [
        b"ADDR=nonsense",
        b"ADDR=",
        b"ADDR",
        b"PORT=65536",
        b"PORT=x",
        b"PROTO=LMTP",
        b"UNKNOWN=x",
        b"HELO=a+0D+0Ab",
        b"NAME=" + b"x" * 256,
        b"LOGIN=a+b",
        b"ADDR=192.0.2.9 PORT=-1",
        "NAME=grüße".encode(),
    ],
)
async def test_an_invalid_attribute_changes_nothing(factory: Factory, attributes: bytes) -> None:
    async with serving(factory.uri, server=listener(xclient=LOOPBACK)) as port, Dialogue(port) as client:
        assert (await client.ask(b"XCLIENT " + attributes)).startswith("501 5.5.4")
        assert (await client.submit()).startswith("250")
    [row] = factory.queue()
    assert (row.senderip, row.senderhelo) == ("127.0.0.1", "client.example")


async def test_xclient_within_a_transaction_is_refused(factory: Factory) -> None:
    async with serving(factory.uri, server=listener(xclient=LOOPBACK)) as port, Dialogue(port) as client:
        await client.envelope()
        assert (await client.ask(b"XCLIENT ADDR=192.0.2.9")).startswith("503 5.5.1")
        assert (await client.data()).startswith("250")


async def test_xclient_to_a_client_refused_by_policy_ends_the_session(factory: Factory) -> None:
    rule = {
        "id": "out",
        "phase": "connect",
        "if": {"client": ["192.0.2.0/24"]},
        "then": {"reject": "554 5.7.1 No"},
    }
    policy = {"rules": [rule]}
    settings = listener(xclient=LOOPBACK)
    async with serving(factory.uri, server=settings, policy=policy) as port, Dialogue(port) as client:
        assert await client.ask(b"XCLIENT ADDR=192.0.2.9") == "554 5.7.1 No"
        assert await client.ended() == b""
