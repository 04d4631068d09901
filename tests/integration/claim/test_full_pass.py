"""test_full_pass — after notifications may have been missed, the next claim also looks below the floor

Owns: proofs about Claimer.start_over and Dispatcher.start_over.
See: queued/claiming/claim.py, the floor; shared/postgres/wakeup.py, which says when.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from queued.claiming.claim import Claimer
from shared.config.queued.settings import Claim
from shared.postgres import database as db

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory


async def test_rows_below_the_floor_are_found_by_the_next_claim(factory: Factory) -> None:
    claimer = Claimer("true", "worker", Claim(poll=timedelta(hours=1)))
    first = factory.row()
    connection = await db.connect(factory.uri, "claiming")
    try:
        assert [c.id for c in await claimer.take(connection, 10)] == [first]
        below = factory.row(due=timedelta(hours=-1))
        assert await claimer.take(connection, 10) == []
        claimer.start_over()
        assert [c.id for c in await claimer.take(connection, 10)] == [below]
        # Once: the floor holds again.
        factory.row(due=timedelta(hours=-2))
        assert [c.id for c in await claimer.take(connection, 10)] == []
    finally:
        await connection.close()
