"""test_wakeup_echo — a connection without notifications is detected and reopened, or polling takes over

Owns: proofs about the echo probe of shared/postgres/wakeup.py, through a proxy and through a real PgBouncer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from shared.postgres import database as db
from shared.postgres import wakeup
from tests.fixtures.heard import until
from tests.fixtures.peers.pooler import pooling
from tests.fixtures.peers.proxy import relaying
from tests.fixtures.waiting import PATIENCE, in_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

OFTEN = 0.1  # seconds between two probes


class Woken(asyncio.Event):
    """The reports of the listener: mail is due, and notifications may have been missed."""

    def __init__(self) -> None:
        super().__init__()
        self.missed = 0

    def miss(self) -> None:
        """Notifications may have gone unheard."""
        self.missed += 1

    async def heard(self) -> None:
        """Wait until it is set, and clear it."""
        async with asyncio.timeout(PATIENCE):
            await self.wait()
        self.clear()


@asynccontextmanager
async def probed(listening: str, sending: str, where: str = "metadata->>'_partid' = '1'") -> AsyncIterator[Woken]:
    """A listener over one URI with echoes sent over the other."""
    pool = await db.open_pool(sending, "echoes", 2)
    woken = Woken()
    part = wakeup.listen(listening, "listener", where, woken, missed=woken.miss, pool=pool, probe=OFTEN)
    try:
        async with in_background(part):
            await woken.heard()
            yield woken
    finally:
        await pool.close()


async def echoed(uri: str, senders: int = 1) -> None:
    """Wait until so many senders have each sent three echoes more.

    The next echo is sent when the last one was heard, so two of the three were.
    """
    counts: Counter[int] = Counter()
    connection = await db.connect(uri, "eavesdropper")
    try:
        await connection.execute("LISTEN pillarbox")
        async with asyncio.timeout(PATIENCE):
            while sum(count >= 3 for count in counts.values()) < senders:
                counts.update([n.pid async for n in connection.notifies(stop_after=1) if n.payload.startswith("echo:")])
    finally:
        await connection.close()


async def test_a_connection_that_receives_its_echoes_is_kept(factory: Factory, heard: Heard) -> None:
    async with (
        relaying(factory.uri) as proxy,
        probed(proxy.uri, factory.uri) as woken,
        probed(factory.uri, factory.uri, "true") as other,
    ):
        await echoed(factory.uri, senders=2)
        assert not woken.is_set()  # an echo, own or foreign, is not mail
        assert not other.is_set()
        factory.sql("SELECT pg_notify('pillarbox', '1')")
        await woken.heard()
        assert (proxy.opened, woken.missed) == (1, 1)
    assert heard.all("wakeup.lost") + heard.all("wakeup.deaf") + heard.all("wakeup.swallowed") == []


async def test_a_silent_connection_is_reopened_and_the_whole_queue_checked(factory: Factory, heard: Heard) -> None:
    async with relaying(factory.uri) as proxy, probed(proxy.uri, factory.uri) as woken:
        factory.sql("SELECT pg_notify('pillarbox', '1')")
        await woken.heard()
        proxy.deaf()
        factory.sql("SELECT pg_notify('pillarbox', '1')")  # no worker receives this
        await heard.wait("wakeup.deaf")
        await woken.heard()
        assert (woken.missed, proxy.opened) == (2, 2)
        factory.sql("SELECT pg_notify('pillarbox', '1')")
        await woken.heard()
        await until(lambda: proxy.open == 1, "the deaf connection to be closed")
    assert heard.all("wakeup.lost") == []


async def test_a_connection_that_falls_silent_during_a_query_is_reopened(factory: Factory, heard: Heard) -> None:
    async with relaying(factory.uri) as proxy, probed(proxy.uri, factory.uri, "true") as woken:
        proxy.delay = 0.3
        factory.sql("SELECT pg_notify('pillarbox', '77')")  # of an id it has yet to ask PostgreSQL about
        await until(lambda: asked(factory), "the question about the id")
        proxy.deaf()
        proxy.delay = 0.0
        await heard.wait("wakeup.deaf")
        await woken.heard()
        factory.sql("SELECT pg_notify('pillarbox', '77')")
        await woken.heard()
    assert woken.missed == 2


def asked(factory: Factory) -> bool:
    found = factory.sql(
        """SELECT 1 FROM pg_stat_activity WHERE application_name = 'listener' AND query LIKE '%%IS NOT FALSE%%'
              AND datname = current_database()"""
    )
    return bool(found)


async def test_a_slow_connection_is_not_reopened(factory: Factory, heard: Heard) -> None:
    async with relaying(factory.uri) as proxy, probed(proxy.uri, factory.uri) as woken:
        proxy.delay = 0.5
        for _ in range(3):
            factory.sql("SELECT pg_notify('pillarbox', '1')")
            await woken.heard()
        assert (proxy.opened, woken.missed) == (1, 1)
    assert heard.all("wakeup.deaf") == []


async def test_reconnects_pause_for_growing_random_times(factory: Factory, heard: Heard) -> None:
    async with relaying(factory.uri) as proxy, probed(proxy.uri, factory.uri) as woken:
        proxy.refuse = True
        proxy.cut()
        pauses = [fields["seconds"] for fields in await heard.wait("wakeup.lost", 5)]
        assert all(0.1 * 2**n <= pause <= 0.3 * 2**n for n, pause in enumerate(pauses)), pauses
        assert len(set(pauses)) == len(pauses)
        proxy.refuse = False
        await woken.heard()
        await until(lambda: woken.missed == 2)
        # A received notification proves the connection, so the next pause is short again.
        factory.sql("SELECT pg_notify('pillarbox', '1')")
        await woken.heard()
        before = len(heard.all("wakeup.lost"))
        proxy.cut()
        assert (await heard.wait("wakeup.lost", before + 1))[before]["seconds"] <= 0.3


async def test_a_failed_echo_sender_does_not_reopen_the_listener(factory: Factory, heard: Heard) -> None:
    async with relaying(factory.uri) as proxy, probed(factory.uri, proxy.uri) as woken:
        proxy.refuse = True
        proxy.cut()
        await until(lambda: proxy.refused > 0, "the sender to try")
        proxy.refuse = False
        await echoed(factory.uri)
        factory.sql("SELECT pg_notify('pillarbox', '1')")
        await woken.heard()
        assert woken.missed == 1
    assert heard.all("wakeup.deaf") + heard.all("wakeup.swallowed") == []


async def test_a_pooler_that_drops_notifications_is_logged_once(
    factory: Factory, heard: Heard, pgbouncer: Path
) -> None:
    with pooling(pgbouncer, factory.uri) as through:
        async with probed(through, through) as woken:
            [event] = await heard.wait("wakeup.swallowed")
            assert 60 < event["seconds"] < 300
            assert woken.missed == 1
    assert heard.all("wakeup.deaf") + heard.all("wakeup.lost") == []


async def test_a_direct_uri_receives_notifications_sent_through_the_pooler(
    factory: Factory, heard: Heard, pgbouncer: Path
) -> None:
    with pooling(pgbouncer, factory.uri) as through:
        async with probed(factory.uri, through) as woken:
            await echoed(factory.uri)
            factory.sql("SELECT pg_notify('pillarbox', '1')")
            await woken.heard()
            assert woken.missed == 1
    assert heard.all("wakeup.deaf") + heard.all("wakeup.swallowed") == []


async def test_a_pooled_session_hears_itself_so_echoes_come_from_another_session(
    factory: Factory, pgbouncer: Path
) -> None:
    with pooling(pgbouncer, factory.uri) as through:
        listener, other = await db.connect(through, "listener"), await db.connect(through, "other")
        try:
            await listener.execute("LISTEN pillarbox")
            for sender, expected, waiting in ((listener, ["echo"], PATIENCE), (other, [], 1)):
                await sender.execute("SELECT pg_notify('pillarbox', 'echo')")
                assert [n.payload async for n in listener.notifies(timeout=waiting, stop_after=1)] == expected
        finally:
            await listener.close()
            await other.close()


async def test_no_statement_is_prepared_behind_a_pooler(factory: Factory, pgbouncer: Path) -> None:
    with pooling(pgbouncer, factory.uri) as through:
        connections = [await db.connect(through, "pooled") for _ in range(2)]
        pool = await db.open_pool(through, "pooled", 1)
        direct = await db.connect(factory.uri, "direct")
        try:
            assert [db.is_pooled(connection) for connection in (*connections, direct)] == [True, True, False]
            async with pool.connection() as lent:
                assert db.is_pooled(lent)
                for _ in range(20):
                    for connection in (*connections, lent):
                        await db.fetch(connection, "wakeup_notify", partids=["1"])
        finally:
            await pool.close()
            for connection in (*connections, direct):
                await connection.close()
