"""test_sessions — one network does not fill all sessions, and the last ones are reserved for relay clients

Owns: the share of a network in all sessions, and `load.reserve`.
See: docs/how-to/accept/limit-clients.md; smtpd/session/overload.py; smtpd/rates/limits.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from smtpd import replies
from tests.fixtures.daemons.serving import HOSTNAME, Dialogue, serving
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.fixtures.heard import Heard
    from tests.fixtures.peers.certificates import Authority

FRIEND = "127.0.0.2"
PROXY = {"listeners": [{"address": "127.0.0.1", "port": 0, "proxy": {"networks": ["127.0.0.0/8"]}}]}


async def greeting(port: int, client: str, stack: AsyncExitStack) -> str:
    """The greeting of this client, which stays connected."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stack.callback(writer.close)
    family = "TCP6" if ":" in client else "TCP4"
    writer.write(f"PROXY {family} {client} {client} 4321 25\r\n".encode())
    async with asyncio.timeout(PATIENCE):
        return (await reader.readline()).decode().strip()


@pytest.mark.parametrize(
    "one",
    [[f"2001:db8:0:{n:x}::1" for n in range(12)], [f"198.51.100.{n}" for n in range(1, 13)]],
    ids=["ipv6", "ipv4"],
)
async def test_one_network_gets_at_most_a_quarter_of_all_sessions(database: str, one: list[str]) -> None:
    """Each of its hosts keeps to rates.address.sessions."""
    settings: dict[str, Any] = {"server": PROXY, "load": {"sessions": 40}, "relay": {"networks": ["192.0.2.0/24"]}}
    async with serving(database, **settings) as port, AsyncExitStack() as stack:
        said = [(await greeting(port, client, stack))[:9] for client in one]
        assert said == ["220 mx.pi"] * 10 + ["421 4.7.0"] * 2
        for other in ("2001:db8:0:100::1", "203.0.113.1", "192.0.2.1"):
            assert (await greeting(port, other, stack)).startswith("220")


async def test_the_last_sessions_are_reserved_for_relay_clients(database: str, heard: Heard) -> None:
    settings: dict[str, Any] = {
        "load": {"sessions": 20},
        "rates": {"network": {"sessions": 0}},
        "relay": {"networks": [FRIEND]},
    }
    async with serving(database, **settings) as port, AsyncExitStack() as stack:
        for number in range(18):
            stranger = Dialogue(port, ehlo=None, source=f"127.0.0.{10 + number}")
            assert (await stack.enter_async_context(stranger)).greeting[0].startswith("220")
        async with Dialogue(port, ehlo=None, source="127.0.0.9") as late:
            assert late.greeting == [replies.R421_TOO_BUSY]
        for _ in range(2):
            friend = await stack.enter_async_context(Dialogue(port, source=FRIEND))
            assert (await friend.submit()).startswith("250")
        async with Dialogue(port, ehlo=None, source=FRIEND) as late:
            assert late.greeting == [replies.R421_TOO_BUSY]
    assert [each["reason"] for each in heard.all("load.refused")] == ["reserve", "sessions"]


@pytest.mark.parametrize(
    ("limits", "greeted"),
    [({"address": {"sessions": 2}}, 2), ({"address": {"sessions": 0}, "network": {"sessions": 0}}, 18)],
    ids=["rates", "reserve"],
)
async def test_refused_connections_that_stay_open_take_no_session(
    database: str, heard: Heard, limits: dict[str, Any], greeted: int
) -> None:
    """Refused by a limit of rates or by the reserve."""
    settings: dict[str, Any] = {"load": {"sessions": 20}, "rates": limits, "relay": {"networks": [FRIEND]}}
    async with serving(database, **settings) as port, AsyncExitStack() as stack:
        said: Counter[str] = Counter()
        for _ in range(greeted + 40):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.9", 0))
            stack.callback(writer.close)
            async with asyncio.timeout(PATIENCE):
                said[(await reader.readline())[:3].decode()] += 1
        assert said == {"220": greeted, "421": 40}
        async with Dialogue(port, source=FRIEND) as friend:
            assert (await friend.submit()).startswith("250")
        async with Dialogue(port, ehlo=None, source="127.0.1.1") as other:
            assert other.greeting[0][:3] == ("220" if greeted < 18 else "421")
    assert "sessions" not in [each["reason"] for each in heard.all("load.refused")]


async def test_clients_that_never_begin_tls_are_limited_like_others(
    database: str, authority: Authority, heard: Heard
) -> None:
    """Where TLS comes first, a client is counted before its handshake."""
    listener = {"address": "127.0.0.1", "port": 0, "tls": "implicit"}
    settings: dict[str, Any] = {
        "server": {"tls": authority.issue(HOSTNAME), "listeners": [listener]},
        "load": {"sessions": 20},
        "relay": {"networks": [FRIEND]},
    }

    async def said(source: str) -> bytes:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=(source, 0), ssl=authority.trust(), server_hostname=HOSTNAME
        )
        stack.callback(writer.close)
        async with asyncio.timeout(PATIENCE):
            return (await reader.readline())[:3]

    async with serving(database, **settings) as port, AsyncExitStack() as stack:
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.9", 0))
            stack.callback(writer.close)
        await heard.wait("rates.exceeded", 15)
        assert await said(FRIEND) == await said("127.0.1.1") == b"220"


async def test_missing_handshakes_leave_the_last_sessions_to_relay_clients(
    database: str, authority: Authority, heard: Heard
) -> None:
    listener = {"address": "127.0.0.1", "port": 0, "tls": "implicit"}
    settings: dict[str, Any] = {
        "server": {"tls": authority.issue(HOSTNAME), "listeners": [listener]},
        "load": {"sessions": 20},
        "rates": {"network": {"sessions": 0}},
        "relay": {"networks": [FRIEND]},
    }
    async with serving(database, **settings) as port, AsyncExitStack() as stack:
        for number in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.0.{10 + number}", 0))
            stack.callback(writer.close)
        await heard.wait("load.refused", 2)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, local_addr=(FRIEND, 0), ssl=authority.trust(), server_hostname=HOSTNAME
        )
        stack.callback(writer.close)
        async with asyncio.timeout(PATIENCE):
            assert (await reader.readline()).startswith(b"220")
