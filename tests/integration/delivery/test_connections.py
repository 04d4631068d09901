"""test_connections — the pool keeps, limits, renews and closes connections to a sink"""

from __future__ import annotations

import asyncio

import pytest

from queued.routing.route import Hop
from queued.smtp.pool import ConnectionPool, Rest, ReuseLimits, SessionWanted
from queued.smtp.transaction import ConversationError, Timeouts, Transaction
from queued.values import PoolClosedError
from scripts.sink.server import Sink
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.peers.scripted_peer import CLOSE, PLAIN, ScriptedPeer, until
from tests.fixtures.waiting import PATIENCE

MESSAGE = Transaction("alice@example.com", ("bob@example.net",), b"Subject: x\r\n\r\ntext\r\n")
HANGING = Transaction("alice@example.com", ("hangdot@example.net",), b"Subject: x\r\n\r\ntext\r\n")
US = SessionWanted("c.example")
FOREVER = ReuseLimits(transactions=1_000_000, idle=3600.0, age=3600.0)


def make_pool(*, concurrency: int = 20, limits: ReuseLimits = FOREVER) -> ConnectionPool:
    return ConnectionPool(timeouts=Timeouts(), concurrency=concurrency, limits=limits)


def at(sink: Sink) -> Hop:
    return Hop(sink.host, sink.port, "")


def at_port(port: int) -> Hop:
    return Hop("127.0.0.1", port, "")


async def deliver(pool: ConnectionPool, sink: Sink, transaction: Transaction = MESSAGE) -> int:
    async with pool.acquire(at(sink), US) as connection:
        result = await connection.send(transaction)
        assert result.final is not None
        return connection.transactions


async def test_consecutive_deliveries_share_a_connection() -> None:
    async with Sink() as sink:
        pool = make_pool()
        assert [await deliver(pool, sink) for _ in range(5)] == [1, 2, 3, 4, 5]
        assert (sink.connections, pool.idle, pool.borrowed) == (1, 1, 0)
        await pool.close()
        await sink.wait_until_empty()
        assert sink.commands["QUIT"] == 1


async def test_connections_never_exceed_the_limit() -> None:
    most = 0
    async with Sink() as sink:
        pool = make_pool(concurrency=3)

        async def one() -> None:
            nonlocal most
            async with pool.acquire(at(sink), US) as connection:
                most = max(most, pool.borrowed)
                await connection.send(MESSAGE)

        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(one())
        assert most == 3
        assert sink.connections == 3
        assert len(sink.received) == 50
        await pool.close()


async def test_hosts_have_separate_limits() -> None:
    async with Sink() as first, Sink() as second:
        pool = make_pool(concurrency=1)
        async with pool.acquire(at(first), US), asyncio.timeout(PATIENCE):
            assert await deliver(pool, second) == 1
        await pool.close()


async def test_a_connection_is_renewed_after_its_transaction_limit() -> None:
    async with Sink() as sink:
        pool = make_pool(limits=ReuseLimits(transactions=3, idle=3600, age=3600))
        assert [await deliver(pool, sink) for _ in range(7)] == [1, 2, 3, 1, 2, 3, 1]
        assert sink.connections == 3
        await pool.close()


async def test_a_connection_is_renewed_at_its_age_limit() -> None:
    async with Sink() as sink:
        pool = make_pool(limits=ReuseLimits(transactions=100, idle=3600, age=0))
        assert [await deliver(pool, sink) for _ in range(3)] == [1, 1, 1]
        assert pool.idle == 0
        await pool.close()


async def test_an_idle_connection_is_closed() -> None:
    async with Sink() as sink:
        pool = make_pool(limits=ReuseLimits(transactions=100, idle=0.05, age=3600))
        await deliver(pool, sink)
        assert sink.open_connections == 1
        await sink.wait_until_empty()  # without any use of the pool
        assert pool.idle == 0
        assert not pool._hosts
        await pool.close()


async def test_a_host_that_hung_up_gets_a_new_connection() -> None:
    async with ScriptedPeer(*PLAIN, CLOSE) as peer:
        pool = make_pool()
        async with pool.acquire(at_port(peer.port), US) as connection:
            pass
        await until(lambda: not connection.usable)
        async with pool.acquire(at_port(peer.port), US) as another:
            assert another is not connection
        assert peer.connections == 2
        await pool.close()


async def test_a_connection_out_of_step_is_not_kept() -> None:
    async with Sink() as sink:
        pool = make_pool()
        async with pool.acquire(at(sink), US) as connection:
            await connection.send(Transaction("a@example.com", ("dropdot@example.net",), b"x\r\n"))
        assert pool.idle == 0
        assert await deliver(pool, sink) == 1
        await pool.close()


async def test_a_failed_connection_holds_no_slot() -> None:
    port = free_port()
    pool = make_pool(concurrency=1)
    for _ in range(3):  # a slot lost on the way would make the second wait for ever
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ConversationError) as caught:
                async with pool.acquire(at_port(port), US):
                    raise AssertionError("the port is closed")
        assert caught.value.fault.kind == "connect"
    assert not pool._hosts
    await pool.close()


async def test_an_error_in_the_block_releases_the_slot() -> None:
    async with Sink() as sink:
        pool = make_pool(concurrency=1)
        with pytest.raises(KeyError):
            async with pool.acquire(at(sink), US):
                raise KeyError
        async with asyncio.timeout(PATIENCE):
            assert await deliver(pool, sink) == 1
        await pool.close()


async def test_close_waits_for_borrowed_connections() -> None:
    async with Sink() as sink:
        pool = make_pool()
        await deliver(pool, sink)
        async with pool.acquire(at(sink), US) as connection:
            closing = asyncio.ensure_future(pool.close())
            await asyncio.sleep(0)
            with pytest.raises(PoolClosedError):
                async with pool.acquire(at(sink), US):
                    raise AssertionError("the pool is closing")
            assert not closing.done()
            assert (await connection.send(MESSAGE)).final is not None
        async with asyncio.timeout(PATIENCE):
            await closing
        await sink.wait_until_empty()
        assert (len(sink.received), sink.commands["QUIT"]) == (2, 1)
        await pool.close()


async def test_close_cuts_remaining_connections_at_its_time_limit() -> None:
    async with Sink() as sink:
        pool = make_pool()

        async def stuck() -> str:
            async with pool.acquire(at(sink), US) as connection:
                result = await connection.send(HANGING)
            assert result.fault is not None
            return result.fault.kind

        delivering = asyncio.ensure_future(stuck())
        await sink.wait_for(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await pool.close()
        async with asyncio.timeout(PATIENCE):
            assert await delivering == "closed"
        await sink.wait_until_empty()
        assert (pool.borrowed, pool.idle) == (0, 0)


async def test_a_cancelled_wait_for_a_slot_leaves_no_trace() -> None:
    async with Sink() as sink:
        pool = make_pool(concurrency=1)
        async with pool.acquire(at(sink), US):
            waiting = asyncio.ensure_future(deliver(pool, sink))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert await deliver(pool, sink) == 1
        await pool.close()
        assert not pool._hosts


async def test_close_ends_waits_for_a_silent_host() -> None:
    silent = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()[:2]
    pool = ConnectionPool(timeouts=Timeouts(), concurrency=1)

    async def borrow() -> None:
        async with pool.acquire(Hop(host, port, ""), US):
            raise AssertionError

    async with silent:
        opening, waiting = (asyncio.create_task(borrow()) for _ in range(2))
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            await pool.close()
            ended = await asyncio.gather(opening, waiting, return_exceptions=True)
        assert [type(each) for each in ended] == [PoolClosedError, PoolClosedError]


class CountedSlot:
    """A slot that says whether it is out."""

    def __init__(self, out: list[CountedSlot]) -> None:
        self.wanted = self.lapsed = False
        self._out = out
        out.append(self)

    def done(self) -> None:
        if self in self._out:
            self._out.remove(self)


def counted(out: list[CountedSlot], hostname: str = "c.example") -> SessionWanted:
    """A session that needs a slot for each connection."""

    async def gate(_: Rest) -> CountedSlot:
        return CountedSlot(out)

    return SessionWanted(hostname, connect_gate=gate)  # type: ignore[arg-type]


async def test_a_slot_is_held_from_before_the_connection_is_opened_until_it_is_closed() -> None:
    out: list[CountedSlot] = []
    async with Sink() as sink:
        pool = make_pool()
        for _ in range(3):
            async with pool.acquire(at(sink), counted(out)) as connection:
                await connection.send(MESSAGE)
        assert (len(out), pool.idle, sink.connections) == (1, 1, 1), "a kept connection holds its slot"
        await pool.close()
        assert out == []


async def test_a_connection_whose_slot_another_worker_waits_for_is_not_kept() -> None:
    out: list[CountedSlot] = []
    async with Sink() as sink:
        pool = make_pool()
        async with pool.acquire(at(sink), counted(out)) as connection:
            await connection.send(MESSAGE)
            out[0].wanted = True
        assert pool.idle == 0
        await until(lambda: not out)
        async with pool.acquire(at(sink), counted(out)) as connection:
            await connection.send(MESSAGE)
        assert pool.idle == 1
        out[0].wanted = True  # only now
        await until(lambda: not out)
        await sink.wait_until_empty()
        await pool.close()


async def test_a_connection_whose_slot_has_lapsed_is_closed_and_not_used_again() -> None:
    """Also where the process was stopped, and nothing had the time to close it before the next message came."""
    out: list[CountedSlot] = []
    async with Sink() as sink:
        pool = make_pool()
        async with pool.acquire(at(sink), counted(out)) as connection:
            await connection.send(MESSAGE)
        out[0].lapsed = True
        async with pool.acquire(at(sink), counted(out)) as connection:
            assert connection.transactions == 0, "a new one, for a new slot"
            await connection.send(MESSAGE)
            out[-1].lapsed = True  # while it is in use: it goes on, and is not kept
        assert pool.idle == 0
        await sink.wait_until_empty()
        async with pool.acquire(at(sink), counted(out)) as connection:
            await connection.send(MESSAGE)
        assert pool.idle == 1
        out[-1].lapsed = True
        await until(lambda: pool.idle == 0 and not out)
        await sink.wait_until_empty()
        await pool.close()


async def test_a_connection_whose_slot_lapses_while_it_is_opened_carries_nothing() -> None:
    out: list[CountedSlot] = []

    async def gate(_: Rest) -> CountedSlot:
        slot = CountedSlot(out)
        slot.lapsed = sink.connections == 0
        return slot

    async with Sink() as sink:
        pool = make_pool()
        async with pool.acquire(at(sink), SessionWanted("c.example", connect_gate=gate)) as connection:  # type: ignore[arg-type]
            await connection.send(MESSAGE)
        assert sink.connections == 2
        assert (pool.idle, sink.commands["MAIL"]) == (1, 1)
        await pool.close()
    assert out == []


async def test_an_idle_connection_of_another_session_is_closed_for_a_slot() -> None:
    out: list[CountedSlot] = []
    async with Sink() as sink:
        pool = make_pool()
        async with pool.acquire(at(sink), counted(out)):
            pass
        async with pool.acquire(at(sink), counted(out, "d.example")):
            await until(lambda: len(out) == 1)
        await pool.close()
    assert out == []


async def test_a_refused_greeting_holds_no_slot() -> None:
    out: list[CountedSlot] = []
    async with Sink(greeting=554) as sink:
        pool = make_pool()
        with pytest.raises(ConversationError):
            async with pool.acquire(at(sink), counted(out)):
                pass
        await pool.close()
    assert out == []


async def test_a_delivery_that_waits_for_a_slot_takes_a_returned_connection() -> None:
    out: list[CountedSlot] = []
    waits = asyncio.Event()

    async def gate(rest: Rest) -> CountedSlot | None:
        while out:
            waits.set()
            if await rest(60.0):
                return None
        return CountedSlot(out)

    session = SessionWanted("c.example", connect_gate=gate)  # type: ignore[arg-type]

    async def one() -> int:
        async with pool.acquire(at(sink), session) as connection:
            await connection.send(MESSAGE)
            return connection.transactions

    async with Sink() as sink:
        pool = make_pool()
        async with pool.acquire(at(sink), session) as connection:
            second = asyncio.create_task(one())
            await waits.wait()
            await connection.send(MESSAGE)
        assert await second == 2
        assert (sink.connections, len(out)) == (1, 1)
        await pool.close()
    assert out == []


async def test_close_ends_waits_for_a_slot() -> None:
    waits = asyncio.Event()

    async def gate(rest: Rest) -> None:
        waits.set()
        assert await rest(60.0)

    async with Sink() as sink:
        pool = make_pool()

        async def one() -> None:
            async with pool.acquire(at(sink), SessionWanted("c.example", connect_gate=gate)):
                pass

        waiting = asyncio.create_task(one())
        await waits.wait()
        await pool.close()
        with pytest.raises(PoolClosedError):
            await waiting
