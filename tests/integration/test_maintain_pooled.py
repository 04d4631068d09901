"""test_maintain_pooled — behind a transaction pooler no worker waits for a session lock that nobody can give back

Owns: proofs about the election in queued/maintain.py through a real PgBouncer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queued import maintain
from shared import database as db
from shared.queued_config import Maintenance
from tests.fixtures.pooler import pooling

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.factory import Factory

LOCKED = """
SELECT count(*) FROM pg_locks
 WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


async def test_a_lock_left_with_another_backend_turns_nobody_away(factory: Factory, pgbouncer: Path) -> None:
    with pooling(pgbouncer, factory.uri) as through:
        pooled, direct = await db.connect(through, "pooled"), await db.connect(factory.uri, "direct")
        try:
            [held] = await db.fetch(direct, "maintain_elect")
            assert held[0]
            assert await maintain.round_if_elected(pooled, "worker", Maintenance())
            await db.fetch(direct, "maintain_resign")
            assert factory.one(LOCKED) == 0
        finally:
            await pooled.close()
            await direct.close()


async def test_without_a_pooler_only_one_is_elected(factory: Factory) -> None:
    first, second = await db.connect(factory.uri, "first"), await db.connect(factory.uri, "second")
    try:
        [held] = await db.fetch(first, "maintain_elect")
        assert held[0]
        assert not await maintain.round_if_elected(second, "worker", Maintenance())
        await db.fetch(first, "maintain_resign")
        assert await maintain.round_if_elected(second, "worker", Maintenance())
    finally:
        await first.close()
        await second.close()
