"""test_memory — content in transfer stays within its budget, and a large message delays no other client

Owns: the memory budget over all connections, the replies to clients that exceed it, and how long others wait.
See: config/smtpd.yaml `memory.bodies`; RFC 5321 section 4.5.3.1.10.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from time import thread_time
from typing import TYPE_CHECKING, Any

import pytest

from smtpd.session.body_budget import STEP, BodyBudget
from tests.fixtures.daemons.serving import MESSAGE, Dialogue, serving

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

MIB = 1 << 20
LINES = b"x" * 98 + b"\r\n"


class Watched(BodyBudget):
    """Remembers the most that was ever taken, and whether all was given back."""

    made: Watched

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.most = 0
        Watched.made = self

    def take(self, octets: int, stranger: str | None = None) -> bool:
        """As in BodyBudget."""
        taken = super().take(octets, stranger)
        self.most = max(self.most, self.used)
        return taken


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    """The budget of the server that is started next."""
    monkeypatch.setattr("smtpd.connection.listener.BodyBudget", Watched)
    return Watched


def sizes(bodies: str, maxsize: str) -> dict[str, Any]:
    return {"memory": {"bodies": bodies}, "server": {"phases": {"data": {"maxsize": maxsize}}}}


async def test_a_declared_size_over_the_memory_budget_is_refused_before_354(
    factory: Factory, budget: type[Watched]
) -> None:
    async with (
        serving(factory.uri, **sizes("1MiB", "1MiB")) as port,
        Dialogue(port) as first,
        Dialogue(port) as second,
    ):
        for client, size in ((first, 700_000), (second, 400_000)):
            assert (await client.ask(b"MAIL FROM:<a@sender.example> SIZE=%d" % size)).startswith("250")
            assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("250")
        await first.send(b"BDAT 700000\r\n" + LINES * 7000)
        assert (await first.reply())[0].startswith("250")
        assert (await second.ask(b"DATA")).startswith("452 4.3.1")
        assert (await first.ask(b"BDAT 0 LAST")).startswith("250")
        # Its transaction is over; now there is room for the next.
        assert (await second.ask(b"DATA")).startswith("503 5.5.1")
        assert (await second.submit(MESSAGE)).startswith("250")
    assert budget.made.used == 0


@pytest.mark.parametrize("begin", [b"DATA", b"BDAT 1000000"])
async def test_a_large_declared_size_without_content_reserves_no_memory(
    factory: Factory, budget: type[Watched], begin: bytes
) -> None:
    async with serving(factory.uri, **sizes("1MiB", "1MiB")) as port, AsyncExitStack() as stack:
        for _ in range(20):
            client = await stack.enter_async_context(Dialogue(port))
            assert (await client.ask(b"MAIL FROM:<a@sender.example> SIZE=1000000")).startswith("250")
            assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("250")
            await client.send(begin + b"\r\n")
            if begin == b"DATA":
                assert (await client.reply())[0].startswith("354")
        async with Dialogue(port) as other:
            assert (await other.ask(b"MAIL FROM:<a@sender.example> SIZE=900000")).startswith("250")
            assert (await other.ask(b"RCPT TO:<b@example.com>")).startswith("250")
            assert (await other.data(LINES * 9000)).startswith("250")
    assert budget.made.used == 0


async def test_twenty_large_messages_at_once_stay_within_the_budget(factory: Factory, budget: type[Watched]) -> None:
    """No client declares a size, so the budget is exceeded midway; refused messages are read to the end."""
    content = LINES * (MIB // len(LINES)) + b".\r\n"
    async with serving(factory.uri, **sizes("4MiB", "2MiB")) as port, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Dialogue(port)) for _ in range(20)]

        async def begin(client: Dialogue) -> None:
            await client.envelope()
            assert (await client.ask(b"DATA")).startswith("354")

        async def go_on(client: Dialogue) -> str:
            for at in range(0, len(content), STEP):
                await client.send(content[at : at + STEP])
            reply = (await client.reply())[0]
            assert (await client.ask(b"NOOP")).startswith("250")
            return reply

        await asyncio.gather(*(begin(client) for client in clients))
        replies = await asyncio.gather(*(go_on(client) for client in clients))
    assert {reply[:9] for reply in replies} <= {"250 2.0.0", "452 4.3.1"}
    accepted = sum(reply.startswith("250") for reply in replies)
    assert 1 <= accepted < 20
    assert len(factory.bodies()) == accepted
    assert budget.made.most <= budget.made.limit
    assert budget.made.used == 0


@pytest.mark.parametrize("begin", [b"DATA\r\n", b"BDAT 500000\r\n"])
async def test_a_disconnect_during_content_releases_its_memory(
    factory: Factory, budget: type[Watched], begin: bytes
) -> None:
    async with serving(factory.uri, **sizes("1MiB", "1MiB")) as port:
        for _ in range(5):
            async with Dialogue(port) as client:
                await client.envelope()
                await client.send(begin)
                await client.send(LINES * 4000)
        async with Dialogue(port) as client:
            assert (await client.submit(LINES * 9000)).startswith("250")
    assert budget.made.used == 0


async def test_a_chunk_over_the_memory_budget_is_refused_and_discarded(factory: Factory, budget: type[Watched]) -> None:
    async with (
        serving(factory.uri, **sizes("1MiB", "1MiB")) as port,
        Dialogue(port) as first,
        Dialogue(port) as second,
    ):
        await first.envelope()
        await first.send(b"BDAT 700000\r\n" + b"x" * 700_000)
        assert (await first.reply())[0].startswith("250")
        await second.envelope()
        await second.send(b"BDAT 400000 LAST\r\n" + b"x" * 400_000)
        assert (await second.reply())[0].startswith("452 4.3.1")
        assert (await second.ask(b"NOOP")).startswith("250")
    assert budget.made.used == 0


@pytest.mark.slow
async def test_a_message_of_50_megabytes_does_not_delay_others(factory: Factory) -> None:
    """The large message comes from another thread, so that the client's own work does not disturb the measurement."""
    content = LINES * (50_000_000 // len(LINES))
    waits = []
    settings = sizes("256MiB", "60MiB")
    async with serving(factory.uri, **settings) as port, Dialogue(port) as other:
        large = asyncio.create_task(asyncio.to_thread(_send, port, content))
        while not large.done():
            began = thread_time()  # the loop's work, whatever else the machine does
            assert (await other.ask(b"RSET")).startswith("250")
            waits.append(thread_time() - began)
            if len(waits) % 90 == 0:  # a message makes good for the commands that led nowhere
                await other.submit()
        assert (await large).startswith(b"250")
    waits.sort()
    assert len(waits) > 100
    assert waits[len(waits) * 99 // 100] < 0.05, f"p99 {waits[len(waits) * 99 // 100] * 1000:.0f} ms"


def _send(port: int, content: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as replies:
        replies.readline()
        for command in (b"HELO large.example", b"MAIL FROM:<a@sender.example>", b"RCPT TO:<b@example.com>", b"DATA"):
            connection.sendall(command + b"\r\n")
            replies.readline()
        connection.sendall(content + b".\r\n")
        return replies.readline()


FRIEND, STRANGER = "127.0.0.2", "127.0.0.1"
REPORTS = b"<b@bounces.example>"


def besieged(**more: Any) -> dict[str, Any]:
    """Any client may send to bounces.example, and one address to any recipient."""
    settings = sizes("8MiB", "1MiB")
    return {**settings, "relay": {"networks": [FRIEND]}, "suppression": {"accept": ["bounces.example"]}, **more}


async def drip(stack: AsyncExitStack, port: int, source: str, octets: int) -> Dialogue:
    """A connection in the middle of a message, which goes on for as long as the server is patient."""
    client = await stack.enter_async_context(Dialogue(port, source=source))
    await client.envelope(REPORTS)
    assert (await client.ask(b"DATA")).startswith("354")
    for at in range(0, octets, STEP):
        await client.send(b"x" * min(STEP, octets - at))
    return client


@pytest.mark.parametrize("sources", [[STRANGER], [f"127.0.0.{n}" for n in range(10, 17)]], ids=["one", "many"])
async def test_untrusted_clients_leave_memory_for_relay_clients(
    factory: Factory, budget: type[Watched], sources: list[str]
) -> None:
    """46 slow connections to an open address, and 60 of 60 messages are accepted beside them."""
    async with serving(factory.uri, **besieged()) as port, AsyncExitStack() as stack:
        for number in range(46):
            await drip(stack, port, sources[number % len(sources)], 1_000_000)
        async with Dialogue(port, source=FRIEND) as client:
            replies = [await client.submit(LINES * 9000) for _ in range(60)]
        assert [reply[:3] for reply in replies] == ["250"] * 60
        limit = budget.made.limit * (0.25 if len(sources) == 1 else 0.75)
        assert 0 < budget.made.used <= limit
    assert budget.made.used == 0
    assert len(factory.queue()) == 60


async def test_one_untrusted_client_leaves_memory_for_another(factory: Factory, budget: type[Watched]) -> None:
    async with serving(factory.uri, **besieged()) as port, AsyncExitStack() as stack:
        for _ in range(10):
            await drip(stack, port, STRANGER, 1_000_000)
        async with Dialogue(port, source="127.0.0.9") as other:
            assert (await other.submit(LINES * 9000, REPORTS)).startswith("250")
    assert budget.made.used == 0


async def test_an_untrusted_client_may_send_a_message_of_the_maximum_size(factory: Factory) -> None:
    settings = besieged(memory={"bodies": "1MiB", "share": 0, "reserve": 1})
    async with serving(factory.uri, **settings) as port, Dialogue(port, source=STRANGER) as client:
        assert (await client.submit(LINES * 10_000, REPORTS)).startswith("250")
