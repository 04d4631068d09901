"""test_search — a search of the queue looks at one stretch after the other, and says where it has ended

Owns: proofs about `first` of operate/queue/look.py, without a daemon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from operate.queue import look
from operate.queue.query import asked

if TYPE_CHECKING:
    import pytest

    from tests.fixtures.database.factory import Factory


async def test_a_search_ends_after_a_stretch_when_its_time_is_over_and_else_looks_at_everything(
    factory: Factory, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = factory.rows(30)
    monkeypatch.setattr(look, "_STRETCH", 10)
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        nothing = await asked(connection, ["recipientdomain=nowhere.example"])
        assert await look.first(connection, nothing, after=0, limit=5, seconds=0) == ([], ids[0] + 9)
        assert await look.first(connection, nothing, after=0, limit=5, seconds=None) == ([], None)
        everything = await asked(connection, [])
        rows, reached = await look.first(connection, everything, after=ids[3], limit=50, seconds=None)
        assert ([row.id for row in rows], reached) == (ids[4:], None)
        rows, reached = await look.first(connection, everything, after=0, limit=4, seconds=0)
        assert ([row.id for row in rows], reached) == (ids[:4], None)
        assert await look.first(connection, everything, after=ids[-1], limit=4, seconds=0) == ([], None)
        either = await asked(connection, ["id=1", "or", f"id={ids[-1]}"])
        rows, reached = await look.first(connection, either, after=0, limit=4, seconds=None)
        assert [row.id for row in rows] == [each for each in ids if each in {1, ids[-1]}]
