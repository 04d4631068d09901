"""test_warmup — the daily allowance of a new address, counted by PostgreSQL for all workers together

See: tests/integration/delivery/test_sources.py for the mail itself.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import date, timedelta
from typing import TYPE_CHECKING

import psycopg

from queued.routing.warmup import Warmups
from shared.postgres import database as door
from tests.fixtures.peers.proxy import relaying

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.database.logins import Logins
    from tests.fixtures.heard import Heard

DAY = date(2026, 12, 1)
ADDRESS = "192.0.2.10"


@asynccontextmanager
async def counting(uri: str) -> AsyncIterator[Warmups]:
    """The allowances of one worker."""
    pool = await door.open_pool(uri, "worker", 2)
    pool.timeout = 1.0
    warmups = Warmups()
    warmups.share(pool)
    try:
        yield warmups
    finally:
        await pool.close()


async def send(warmups: Warmups, most: int, tries: int = 1000, address: str = ADDRESS, day: date = DAY) -> int:
    """How many of so many messages may leave."""
    sent = 0
    for _ in range(tries):
        assert await warmups.refill(address, day, most)
        if warmups.take(address, day):
            sent += 1
        await asyncio.sleep(0)
    return sent


async def test_all_workers_together_send_exactly_the_allowance(database: str) -> None:
    async with counting(database) as one, counting(database) as two:
        sent = await asyncio.gather(send(one, 130), send(two, 130))
        assert sum(sent) == 130
        assert min(sent) > 0
        assert one.used_up(ADDRESS, DAY, 130)


async def test_a_restarted_worker_continues_the_count(database: str) -> None:
    async with counting(database) as before:
        assert await send(before, 100, tries=60) == 60
    async with counting(database) as after:
        assert await send(after, 100) == 40


async def test_a_worker_that_ends_leaves_no_more_than_a_portion_unused(database: str) -> None:
    async with counting(database) as before:
        assert await send(before, 100, tries=1) == 1
    async with counting(database) as after:
        assert await send(after, 100) == 98


async def test_each_address_and_each_day_has_its_own_allowance(database: str) -> None:
    async with counting(database) as warmups:
        assert await send(warmups, 3) == 3
        assert await send(warmups, 5, day=DAY + timedelta(days=1)) == 5
        assert await send(warmups, 2, address="2001:db8::1") == 2
        assert await send(warmups, 4) == 1  # an allowance that was raised meanwhile


async def test_unused_allowance_is_returned(database: str) -> None:
    async with counting(database) as warmups:
        assert await send(warmups, 1) == 1
        warmups.give_back(ADDRESS, DAY)
        assert not warmups.used_up(ADDRESS, DAY, 1)
        assert await send(warmups, 1) == 1


async def test_counts_of_past_days_are_deleted(database: str) -> None:
    async with counting(database) as warmups:
        await send(warmups, 1)
        await send(warmups, 1, day=DAY + timedelta(days=8))
    connection = await psycopg.AsyncConnection.connect(database)
    async with connection:
        cursor = await connection.execute("SELECT day, used FROM pillarbox.warmups")
        assert await cursor.fetchall() == [(DAY + timedelta(days=8), 1)]


async def test_while_postgresql_is_down_no_more_is_granted(database: str, heard: Heard) -> None:
    async with relaying(database) as proxy, counting(proxy.uri) as warmups:
        assert await send(warmups, 100, tries=1) == 1  # a portion is in flight
        proxy.refuse = True
        proxy.cut()
        assert await send(warmups, 100, tries=1) == 1
        assert not await warmups.refill(ADDRESS, DAY, 100)
        assert not warmups.take(ADDRESS, DAY)
        assert not warmups.used_up(ADDRESS, DAY, 100)
        assert [event["source"] for event in heard.all("warmup.unanswered")] == [ADDRESS]


async def test_the_rights_of_a_worker_suffice_to_count(logins: Logins) -> None:
    async with counting(logins.uri("queued")) as warmups:
        assert await send(warmups, 2) == 2
