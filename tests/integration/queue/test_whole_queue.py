"""test_whole_queue — what counts all of the queue for httpd reads it from end to end, and what lists a page does not

Owns: proofs about the plans of `look` and `act` on the connections of httpd, whose other statements read no table from
    end to end.
See: operate/queue/query.py, fetch_of_all; sql/queries/upkeep/connection.sql.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from operate.queue import act, look, verbs
from operate.queue.query import asked
from shared.postgres import acting
from shared.postgres.queries import query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shared.postgres.database import Connection
    from tests.fixtures.database.factory import Factory

MANY: Final = 3000


async def _count(connection: Connection) -> object:
    return await look.count(connection, await asked(connection, []))


async def _page(connection: Connection) -> object:
    asking = await asked(connection, [])
    return [rows async for rows in look.recipients(connection, asking, after=0, limit=50)]


#: A question, and whether it reads the leaf from end to end.
QUESTIONS: Final[dict[str, tuple[Callable[[Connection], Awaitable[Any]], bool]]] = {
    "count": (_count, True),
    "group": (lambda connection: look.grouped(connection, ["recipientdomain"], [], 50), True),
    "preview": (lambda connection: act.plan(connection, verbs.delete(), [], everything=True), True),
    "list": (_page, False),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_only_what_counts_reads_all(factory: Factory, question: str) -> None:
    factory.sql(query("bench_long_fill"), begin=0, most=MANY, total=MANY)  # of a message each
    factory.sql("ANALYZE pillarbox.queue")
    ask, whole = QUESTIONS[question]
    pool = await acting.open_pool(factory.uri, "pillarbox httpd", 1)
    try:
        async with acting.borrowed(pool, None, 10.0) as connection:
            before = await _read_whole(connection)
            assert await ask(connection)
            assert (await _read_whole(connection) > before) == whole
            kept = await (await connection.execute("SHOW enable_seqscan")).fetchone()
            assert kept == ("off",)
    finally:
        await pool.close()


async def _read_whole(connection: Connection) -> int:
    """How often this session has read the leaf from end to end."""
    await connection.execute("SELECT pg_stat_force_next_flush()")
    cursor = await connection.execute("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'queue_def_123'")
    [[scans]] = await cursor.fetchall()
    return int(scans)
