"""test_sessions_kept_apart — deliveries share a connection only if they would have opened the same one"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from queued.routing.route import Hop
from queued.smtp.auth import Login
from queued.smtp.own_secrets import OwnSecrets
from queued.smtp.pool import ConnectionPool, Rest, ReuseLimits, SessionWanted
from queued.smtp.transaction import ConversationError, Timeouts, Transaction
from queued.tls.context import Contexts
from queued.tls.demanded import TlsWanted
from scripts.sink.server import Sink
from shared.config.queued.login import Auth
from shared.config.queued.transport_tls import TransportTls
from tests.fixtures.peers.relay import Relay
from tests.fixtures.peers.tls_peer import TlsPeer, server_context

if TYPE_CHECKING:
    from tests.fixtures.peers.certificates import Authority

MESSAGE: Final = Transaction("alice@example.com", ("bob@example.net",), b"Subject: x\r\n\r\ntext\r\n")
FOREVER: Final = ReuseLimits(transactions=1_000_000, idle=3600.0, age=3600.0)
US: Final = SessionWanted("c.example")
VERIFIED: Final = TlsWanted("must", "certificate", server="peer.example", names=("peer.example",), why="test")
NAMED: Final = TlsWanted("must", "certificate", implicit=True, server="127.0.0.1", names=("127.0.0.1",), why="test")
UNVERIFIED: Final = TlsWanted("offered", "none", server="peer.example")


def make_pool(*, concurrency: int = 20, contexts: Contexts | None = None) -> ConnectionPool:
    return ConnectionPool(timeouts=Timeouts(), concurrency=concurrency, limits=FOREVER, contexts=contexts)


async def send(pool: ConnectionPool, host: Sink | TlsPeer, session: SessionWanted) -> int:
    """How many transactions the connection has had that this one went over."""
    async with pool.acquire(Hop(host.host, host.port, ""), session) as connection:
        assert (await connection.send(MESSAGE)).fault is None
        return connection.transactions


async def test_another_ehlo_name_uses_another_connection() -> None:
    async with Sink() as sink:
        pool = make_pool()
        other = US._replace(hostname="d.example")
        assert [await send(pool, sink, each) for each in (US, other, US, other, US)] == [1, 1, 2, 2, 3]
        assert (sink.connections, pool.idle) == (2, 2)
        await pool.close()


async def test_another_source_address_uses_another_connection() -> None:
    seen: list[str] = []

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peername")[0])
        writer.write(b"421 4.3.2 not now\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(look, "127.0.0.1", 0) as server:
        hop = Hop("127.0.0.1", server.sockets[0].getsockname()[1], "")
        pool = make_pool()
        for source in ("127.0.0.5", "127.0.0.6", None):
            with pytest.raises(ConversationError):
                async with pool.acquire(hop, US._replace(source=source)):
                    pass
        await pool.close()
    assert seen == ["127.0.0.5", "127.0.0.6", "127.0.0.1"]


async def test_a_foreign_source_address_is_a_fault_that_names_it() -> None:
    async with Sink() as sink:
        pool = make_pool()
        with pytest.raises(ConversationError) as caught:
            await send(pool, sink, US._replace(source="192.0.2.1"))
        assert (caught.value.fault.kind, sink.connections) == ("connect", 0)
        assert "192.0.2.1" in caught.value.fault.text
        await pool.close()


async def test_another_tls_requirement_uses_another_connection(authority: Authority) -> None:
    contexts = Contexts(TransportTls.model_validate({"ca": str(authority.file)}))
    async with TlsPeer(server_context(authority.issue("peer.example"))) as host:
        pool = make_pool(contexts=contexts)
        loose, strict = US._replace(tls=UNVERIFIED), US._replace(tls=VERIFIED)
        assert [await send(pool, host, each) for each in (loose, strict, strict, loose)] == [1, 1, 2, 2]
        assert host.connections == 2
        await pool.close()


async def test_idle_connections_of_all_sessions_share_the_limit() -> None:
    async with Sink() as sink:
        pool = make_pool(concurrency=2)
        for number in range(5):
            await send(pool, sink, US._replace(hostname=f"c{number}.example"))
        assert pool.idle == 2
        assert await send(pool, sink, US._replace(hostname="c4.example")) == 2
        await pool.close()


async def test_the_gate_applies_to_new_connections_only() -> None:
    passed: list[str] = []

    async def gate(_: Rest) -> None:
        passed.append("gate")

    async with Sink() as sink:
        pool = make_pool()
        gated = US._replace(connect_gate=gate)
        assert [await send(pool, sink, gated) for _ in range(3)] == [1, 2, 3]
        assert passed == ["gate"]
        # Another gate does not make another session: every attempt has its own.
        assert await send(pool, sink, US) == 4
        await pool.close()


async def test_an_exception_in_the_gate_prevents_the_connection() -> None:
    class Shut(Exception):
        pass

    async def gate(_: Rest) -> None:
        raise Shut

    async with Sink() as sink:
        pool = make_pool(concurrency=1)
        for _ in range(2):  # the slot is free again
            with pytest.raises(Shut):
                await send(pool, sink, US._replace(connect_gate=gate))
        assert sink.connections == 0
        await pool.close()


async def test_another_login_uses_another_connection(authority: Authority) -> None:
    """Logins do not share connections; mail without a login does not use a connection with one."""
    made = []
    for name in ("alice", "bob"):
        file = authority.folder / name
        file.write_text("the password")
        file.chmod(0o600)
        settings = Auth.model_validate({"user": name, "password": {"file": str(file)}})
        made.append(US._replace(tls=NAMED, login=Login(settings, "auth", "default", OwnSecrets())))
    alice, bob = made
    async with Relay(authority, "the password") as relay:
        hop = Hop("127.0.0.1", relay.port, "")
        pool = make_pool(contexts=Contexts(TransportTls.model_validate({"ca": str(authority.file)})))
        for session in (alice, bob, alice, bob):
            async with pool.acquire(hop, session) as connection:
                assert (await connection.send(MESSAGE)).fault is None
        nobody = US._replace(tls=NAMED)
        async with pool.acquire(hop, nobody) as connection:
            [reply] = (await connection.send(MESSAGE)).recipients
            assert reply is not None
            assert reply.code == 530
        assert pool.idle == 3
        await pool.close()
    assert relay.logins == [("alice", True), ("bob", True)]
    assert relay.mails == ["alice", "bob", "alice", "bob"]
