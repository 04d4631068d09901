"""test_pooled — behind a transaction pooler, too, one worker maintains at a time

Owns: proofs about the election in queued/maintain.py through a real PgBouncer.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from queued.maintain import Maintainer
from shared.config.queued.settings import Maintenance
from shared.postgres import database as db
from tests.fixtures.peers.pooler import pooling

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

LEASE = timedelta(minutes=1)


async def test_one_of_pooled_and_direct_workers_is_elected(factory: Factory, pgbouncer: Path) -> None:
    with pooling(pgbouncer, factory.uri) as through:
        pooled, direct = await db.connect(through, "pooled"), await db.connect(factory.uri, "direct")
        try:
            for holder, other in ((direct, pooled), (pooled, direct)):
                assert (await db.fetch(holder, "maintain_elect", worker="holder", lease=LEASE))[0][0]
                assert not await Maintainer("other", Maintenance()).round_if_elected(other)
                await db.fetch(holder, "maintain_resign", worker="holder")
                assert await Maintainer("other", Maintenance()).round_if_elected(other)
        finally:
            await pooled.close()
            await direct.close()
