"""test_claim_full_pass — after notifications may have gone unheard, the next claim looks below the floor

Owns: proofs about Claimer.start_over and Dispatcher.start_over.
See: queued/claim.py, the floor; shared/wakeup.py, which says when.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from queued.claim import Claimer
from shared import database as db
from shared.queued_config import Claim

if TYPE_CHECKING:
    from tests.fixtures.factory import Factory


async def test_what_lies_below_the_floor_is_found_by_the_next_claim(factory: Factory) -> None:
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
