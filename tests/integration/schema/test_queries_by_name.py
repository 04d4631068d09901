"""test_queries_by_name — a query by name is not run in psycopg's pipeline mode

Owns: proofs about `fetch` and `fetch_octets` of shared/postgres/database.py.
"""

from __future__ import annotations

import pytest

from shared.postgres import database as db


async def test_a_query_by_name_is_refused_in_pipeline_mode(database: str) -> None:
    connection = await db.connect(database, "piped")
    try:
        async with connection.pipeline():
            with pytest.raises(RuntimeError, match="pipeline mode"):
                await db.fetch(connection, "schedule_clock")
            with pytest.raises(RuntimeError, match="pipeline mode"):
                await db.fetch_octets(connection, "schedule_clock")
        [row] = await db.fetch(connection, "schedule_clock")
        assert row.now is not None
    finally:
        await connection.close()
