"""test_host_slots_lapse — a worker whose slots have lapsed opens and uses no connection to the host without a new slot

Owns: the proof, by the sink's count of open connections, for a worker that is cut off from PostgreSQL and for one that
    was stopped and goes on (its clock has jumped), while another one takes its slots.
See: queued/pacing/pace_host.py; sql/README.md, "Pacing", P4b and P4c; tests/integration/delivery/test_connections.py.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from queued.pacing.pace import Fields, Paces
from queued.pacing.pace_shared import LEASE
from queued.routing.route import Hop
from queued.routing.warmup import Warmups
from queued.smtp import sessions
from queued.smtp.pool import ConnectionPool, ReuseLimits
from queued.smtp.sessions import SourceChooser, SourceSettings
from queued.smtp.transaction import Timeouts, Transaction
from queued.tls.demanded import CLEAR
from queued.waiting.deferral import ParkedError
from scripts.sink.server import Sink
from shared.postgres import database as db
from tests.fixtures.daemons.in_hand import in_hand
from tests.fixtures.peers.scripted_peer import until
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from queued.smtp.client import SmtpConnection
    from tests.fixtures.database.factory import Factory

LIMIT = 2
MESSAGE = Transaction("alice@example.com", ("bob@example.net",), b"Subject: x\r\n\r\ntext\r\n")


class Worker:
    """As much of a worker as has connections to a host: its part of the limit, and its pool. clock: see `later`."""

    def __init__(self, name: str, database: db.Pool, sink: Sink) -> None:
        self._later = 0.0
        loop = asyncio.get_running_loop()
        self._paces = Paces(clock=lambda: loop.time() + self._later)
        limits = ReuseLimits(transactions=1000, idle=3600.0, age=3600.0)
        self.pool = ConnectionPool(timeouts=Timeouts(), limits=limits)
        self._name, self._database, self._sink = name, database, sink
        self._voice = SourceSettings("c.example", (), self._paces, Warmups(), {}, LIMIT)
        self._sharing: asyncio.Task[None] | None = None

    def connect(self) -> None:
        """PostgreSQL can be reached."""
        self._sharing = asyncio.create_task(self._paces.shares.run(self._database, self._name))

    async def cut_off(self) -> None:
        """PostgreSQL can no longer be reached."""
        assert self._sharing is not None
        self._sharing.cancel()
        await asyncio.wait([self._sharing])

    def later(self, seconds: float) -> None:
        """So much time passes, for this worker alone."""
        self._later += seconds

    def connection(self) -> AbstractAsyncContextManager[SmtpConnection]:
        """For `async with`: a connection, when there is a slot."""
        hop = Hop(self._sink.host, self._sink.port, "relay.example")
        chooser = SourceChooser(self._voice, Fields("default", "example.net"), in_hand(1).claimed_at)
        return self.pool.acquire(hop, chooser.session(hop, CLEAR))

    async def send(self, count: int = 1) -> None:
        """So many messages at the same time, each over a connection of its own."""
        ready = asyncio.Barrier(count)

        async def one() -> None:
            async with self.connection() as connection:
                assert (await connection.send(MESSAGE)).final is not None
                await ready.wait()

        await asyncio.gather(*(one() for _ in range(count)))

    async def close(self) -> None:
        await self.pool.close()
        await self.cut_off()


@pytest.fixture
async def connections(database: str) -> AsyncIterator[db.Pool]:
    opened = await db.open_pool(database, "paces", 4)
    yield opened
    await opened.close()


async def is_parked(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message finds no slot, and no connection."""
    with monkeypatch.context() as patched:
        patched.setattr(sessions, "_LONGEST_GATE", 0.5)  # seconds
        with pytest.raises(ParkedError):
            await worker.send()


async def until_sent(worker: Worker) -> None:
    """A message is sent once there is a slot."""
    while True:
        with suppress(ParkedError):
            return await worker.send()


def expire(factory: Factory, worker: str) -> None:
    """Its slots are free by PostgreSQL's clock."""
    factory.sql("UPDATE pillarbox.pace_shares SET expires = clock_timestamp() WHERE worker = %(w)s", w=worker)


async def test_a_worker_cut_off_from_postgresql_closes_its_connections_before_others_take_its_slots(
    connections: db.Pool, factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Sink() as sink, asyncio.timeout(PATIENCE):
        one, two = Worker("one", connections, sink), Worker("two", connections, sink)
        one.connect()
        two.connect()
        await one.send(LIMIT)
        assert (sink.open_connections, one.pool.idle) == (LIMIT, LIMIT)
        await one.cut_off()
        one.later(LEASE * 0.9)  # not yet free for the other
        await until(lambda: one.pool.idle == 0)
        await sink.wait_until_empty()
        await is_parked(one, monkeypatch)
        expire(factory, "one")
        async with two.connection(), two.connection():
            one.connect()
            await is_parked(one, monkeypatch)
        await two.pool.close()
        await until_sent(one)
        assert sink.most_connections == LIMIT
        await one.close()
        await two.close()


async def test_a_worker_that_goes_on_after_a_stop_uses_none_of_its_former_connections(
    connections: db.Pool, factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One had its message under way: that goes on to its end, and nothing else."""
    async with Sink() as sink, asyncio.timeout(PATIENCE):
        worker = Worker("one", connections, sink)
        worker.connect()
        await worker.send(LIMIT)
        async with worker.connection() as under_way:
            worker.later(2 * LEASE)
            # Another worker has taken both slots meanwhile.
            factory.sql("UPDATE pillarbox.pace_shares SET worker = 'two', expires = now() + interval '1 minute'")
            # What runs first is the next message, before anything could look after the slots.
            await is_parked(worker, monkeypatch)
            assert sink.commands["MAIL"] == LIMIT
            assert (await under_way.send(MESSAGE)).final is not None
        assert worker.pool.idle == 0
        await sink.wait_until_empty()
        factory.sql("UPDATE pillarbox.pace_shares SET expires = now() WHERE worker = 'two'")
        await until_sent(worker)
        assert sink.most_connections == LIMIT
        await worker.close()
