"""test_session_trouble — our own faults are 451 without details, and a disconnected client leaves nothing

Owns: proofs about smtpd when the database is away, a hook fails, or a client goes in the middle.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, NoReturn

import psycopg
import pytest
from psycopg import sql

from shared.spool.spool import Spool
from tests.fixtures.daemons.serving import MESSAGE, Dialogue, serving
from tests.fixtures.daemons.submissions import SPOOL
from tests.fixtures.heard import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.mail.message import Submission
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard
    from tests.fixtures.servers.postgres import ServerUnderTest


class Faulty(Spool):
    """A spool with a fault of ours: it raises an unexpected exception."""

    async def submit(self, submission: Submission) -> NoReturn:
        """Fail the first time a message comes."""
        raise RuntimeError(f"secret detail about {submission.id}")


class Gate:
    """Closes a database to all logins, and opens it again."""

    def __init__(self, server: ServerUnderTest, uri: str) -> None:
        self._server = server
        self._name = psycopg.conninfo.conninfo_to_dict(uri)["dbname"]

    def close(self) -> None:
        self._allow("false")
        self._run("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", self._name)

    def open(self) -> None:
        self._allow("true")

    def _allow(self, word: str) -> None:
        change = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(
            sql.Identifier(str(self._name)), sql.Literal(word == "true")
        )
        with psycopg.connect(self._server.administrator, autocommit=True) as connection:
            connection.execute(change)

    def _run(self, text: str, *values: object) -> None:
        with psycopg.connect(self._server.administrator, autocommit=True) as connection:
            connection.execute(text.encode(), values)


def reset(client: Dialogue) -> None:
    """Close with a TCP RST, as by a killed program."""
    linger = struct.pack("ii", 1, 0)
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    client.writer.transport.abort()


@pytest.fixture
def gate(server: ServerUnderTest, database: str) -> Iterator[Gate]:
    made = Gate(server, database)
    yield made
    made.open()


async def test_an_unavailable_database_is_451_until_it_is_back(database: str, gate: Gate, heard: Heard) -> None:
    async with serving(database) as port, Dialogue(port) as client:
        assert (await client.submit()).startswith("250")
        gate.close()
        trouble = "451 4.3.0 Local error in processing, try again"
        await client.envelope()
        # Known to be down it says so before it asks for the message, else after it has come.
        if not (reply := await client.ask(b"DATA")).startswith("354"):
            assert reply == trouble
        else:
            assert await client.ask(MESSAGE + b".") == trouble
        await client.envelope()  # the refused DATA has ended the transaction
        assert await client.ask(b"DATA") == trouble
        gate.open()
        await heard.wait("spool.recovered")
        assert (await client.submit()).startswith("250")
    assert heard.all("session.error") == []
    assert len(heard.all("spool.committed")) == 2
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM pillarbox.messages").fetchone() == (2,)


async def test_a_fault_of_ours_is_451_without_details(factory: Factory, heard: Heard) -> None:
    async with serving(factory.uri, spool=Faulty) as port, Dialogue(port) as client:
        assert await client.submit() == "451 4.3.0 Local error in processing, try again"
        [fault] = heard.all("session.error")
        assert "secret detail" in fault["error"]
        assert (await client.ask(b"NOOP")).startswith("250")


async def test_a_fault_of_ours_at_the_end_of_data_resets_the_transaction(factory: Factory) -> None:
    """RFC 5321 section 4.1.1.4: the end of data clears the buffers, with any reply."""
    async with serving(factory.uri, spool=Faulty) as port, Dialogue(port) as client:
        await client.submit()
        assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith("503")
        assert (await client.ask(b"MAIL FROM:<next@sender.example>")).startswith("250")


async def test_a_disconnect_during_data_stores_nothing(factory: Factory) -> None:
    async with serving(factory.uri) as port:
        for unfinished in (b"", b"half a li", b"a line\r\n", b"a line\r\n.", b"a line\r\n.\r"):
            async with Dialogue(port) as client:
                await client.envelope()
                await client.ask(b"DATA")
                await client.send(unfinished)
        async with Dialogue(port) as client:
            assert (await client.submit()).startswith("250")
    assert len(factory.bodies()) == len(factory.queue()) == 1


async def test_a_disconnect_during_the_commit_is_committed_and_logged(factory: Factory, heard: Heard) -> None:
    async with serving(factory.uri) as port:
        with factory.another() as holding:
            holding.execute("LOCK TABLE pillarbox.queue IN EXCLUSIVE MODE")
            async with Dialogue(port) as client:
                await client.envelope()
                await client.ask(b"DATA")
                await client.send(MESSAGE + b".\r\n")
                await until(lambda: factory.waiting(SPOOL), "the commit to be held up")
                reset(client)
            async with Dialogue(port):
                pass  # a client greeted now comes after the disconnect was noticed
        [lost] = await heard.wait("spool.reply_lost")
    [row] = factory.queue()
    assert (lost["id"], lost["client"]) == (row.messages__id, "127.0.0.1")
    assert heard.all("spool.committed") == []


@pytest.mark.parametrize("begin", [b"DATA\r\n", b"BDAT 24 LAST\r\n", b"BDAT 24 LAST\r\n" + MESSAGE + b"NOOP\r\n"])
async def test_a_client_that_half_closes_after_the_content_gets_its_reply(factory: Factory, begin: bytes) -> None:
    """Without the reply the client would have to send queued mail again."""
    assert len(MESSAGE) == 24
    rest = {b"DATA\r\n": MESSAGE + b".\r\n", b"BDAT 24 LAST\r\n": MESSAGE}.get(begin, b"")
    async with serving(factory.uri) as port, Dialogue(port) as client:
        with factory.another() as holding:
            holding.execute("LOCK TABLE pillarbox.queue IN EXCLUSIVE MODE")
            await client.envelope()
            await client.send(begin)
            if begin.startswith(b"DATA"):
                await client.reply()
            await client.send(rest)
            await until(lambda: factory.waiting(SPOOL), "the commit to be held up")
            client.writer.write_eof()
            async with Dialogue(port):
                pass  # a client greeted now comes after the end was noticed
        assert (await client.reply())[0].startswith("250 2.0.0 Queued")
        assert await client.ended() in {b"", b"250 2.0.0 Ok\r\n"}
    assert len(factory.queue()) == 1


async def test_a_client_that_half_closes_after_many_commands_gets_all_replies(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.send(b"MAIL FROM:<a@sender.example>\r\n" + b"RCPT TO:<b@example.com>\r\n" * 900)
        client.writer.write_eof()
        assert (await client.ended()).count(b"250 2.1.5") == 900


async def test_a_client_that_half_closes_during_content_is_closed(factory: Factory) -> None:
    async with serving(factory.uri) as port, Dialogue(port) as client:
        await client.send(b"MAIL FROM:<a@sender.example>\r\n" + b"RCPT TO:<b@example.com>\r\n" * 900 + b"BDAT 9\r\nx")
        client.writer.write_eof()
        assert (await client.ended()).endswith(b"250 2.1.5 Ok\r\n")
    assert factory.bodies() == {}


async def test_a_stop_sends_421_to_idle_clients_and_waits_for_a_message(factory: Factory) -> None:
    idle, busy = asyncio.Event(), asyncio.Event()

    async def wait_idly(port: int) -> str:
        async with Dialogue(port) as client:
            idle.set()
            return (await client.reply())[0]

    async def finish_slowly(port: int) -> list[str]:
        async with Dialogue(port) as client:
            await client.envelope()
            await client.ask(b"DATA")
            busy.set()
            await asyncio.gather(waiting)
            await client.send(MESSAGE + b".\r\n")
            return [(await client.reply())[0], (await client.reply())[0]]

    async with serving(factory.uri) as port:
        waiting = asyncio.create_task(wait_idly(port))
        finishing = asyncio.create_task(finish_slowly(port))
        await asyncio.gather(idle.wait(), busy.wait())
    assert (await waiting).startswith("421 4.3.2")
    queued, goodbye = await finishing
    assert queued.startswith("250 2.0.0 Queued")
    assert goodbye.startswith("421 4.3.2")
    assert len(factory.queue()) == 1


async def test_a_stop_does_not_wait_for_clients_before_the_greeting(factory: Factory) -> None:
    """A client that is still being checked gets 421 as soon as the check ends, not after its first command."""
    server = {"phases": {"connect": {"greetdelay": "200ms", "earlytalker": "allow"}}}
    async with serving(factory.uri, server=server) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with Dialogue(port, ehlo=None):
            pass  # when this one was greeted, that one was accepted
        second, other = await asyncio.open_connection("127.0.0.1", port)
    assert b"421 4.3.2" in await reader.read()
    assert (await second.read())[:3] in {b"220", b"421", b""}
    for each in (writer, other):
        each.close()
