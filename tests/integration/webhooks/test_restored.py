"""test-restored — a database that was restored from a dump brings the events that the old one had not brought

Owns: the row W7 of the crash table of webhooks, with Debian's pg_dump.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg.rows import namedtuple_row

from shared.postgres import database as db
from shared.postgres.migrate import migrate
from tests.fixtures.database.factory import Factory
from tests.fixtures.queue.hooked import Hooked, declared
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.fixtures.peers.web.hooks import Hooks
    from tests.fixtures.servers.postgres import ServerUnderTest

_PG_DUMP: Final = Path("/usr/lib/postgresql/15/bin/pg_dump")


async def step(uri: str, hook: Callable[[db.Pool], Hooked]) -> None:
    """Bring what there is to bring, on a pool of its own."""
    pool = await db.open_pool(uri, "webhooks", 2)
    hooked = hook(pool)
    await hooked.settled()
    await hooked.endpoint.close()
    await pool.close()


async def test_a_restored_database_brings_what_the_old_one_had_not(
    debian15: ServerUnderTest, hooks: Callable[[], Awaitable[Hooks]]
) -> None:
    taker = await hooks()
    with debian15.fresh_database() as old, debian15.fresh_database() as new:
        migrate(old, LEAVES)
        with psycopg.connect(old, autocommit=True, row_factory=namedtuple_row) as connection:
            factory = Factory(old, connection)
            target = declared(factory, taker.url, events=["held"])
            rows = [factory.row(status="HOLD")]
            await step(old, lambda pool: Hooked(pool, target))
            rows.append(factory.row(status="HOLD"))
        words = [str(_PG_DUMP), "--no-owner", "--inserts", old]
        dumped = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=True)
        dump = dumped.stdout
        with psycopg.connect(new, autocommit=True) as connection:
            connection.execute("\n".join(line for line in dump.splitlines() if line[:1] != "\\").encode())
        with psycopg.connect(new, autocommit=True, row_factory=namedtuple_row) as connection:
            connection.execute("SET search_path = public")
            factory = Factory(new, connection)
            rows.append(factory.row(status="HOLD"))
            await step(new, lambda pool: Hooked(pool, target))
            rows.append(factory.row(status="HOLD"))
            await step(new, lambda pool: Hooked(pool, target))
    seen = [(event["data"]["id"], event["id"]) for event in taker.taken]
    assert sorted({recipient for recipient, _ in seen}) == rows
    assert len(set(seen)) == len(rows)  # what came twice had one id
