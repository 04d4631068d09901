"""test_queries_by_name — a query by name is not run in psycopg's pipeline mode, and its columns have names of their own

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


async def test_two_columns_of_one_name_are_our_fault_and_no_refused_value(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what was queued or recorded by that query would count as refused for good."""
    connection = await db.connect(database, "two columns")
    monkeypatch.setattr(db, "query", lambda _: "SELECT 1 AS id, 2 AS id")
    try:
        with pytest.raises(TypeError, match="duplicate") as raised:
            await db.fetch(connection, "schedule_clock")
    finally:
        await connection.close()
    assert not db.refuses_value(raised.value)
