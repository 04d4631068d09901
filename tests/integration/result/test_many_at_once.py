"""test_many_at_once — a statement about what a worker has in flight costs as much as it has rows, not the square of it

Owns: proofs about the kept plans of results, heartbeats, parking and release. PostgreSQL expects ten entries of an
    array that it does not know, and compared each recipient of a group with each of its results: 250,000 pairs for
    500 results, six times the work of recording them.
See: PostgreSQL manual, plan_cache_mode; sql/queries/delivery/result.sql.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from queued.claiming.claim import Claimer
from queued.claiming.leaves import Leaves, among
from queued.result import _notices, _results
from queued.values import fence
from shared.config.queued.settings import Claim
from shared.postgres import database
from shared.postgres.array_text import numbers, texts
from shared.postgres.queries import filled_query, numbered
from tests.fixtures.database.plans import nodes, rows_read
from tests.fixtures.database.results import DELIVERED, WORKER, deferred, finished

if TYPE_CHECKING:
    from queued.values import Claimed
    from tests.fixtures.database.factory import Factory

MANY = 300
AGAIN = datetime(2030, 1, 1, tzinfo=UTC)


def _recorded(claimed: list[Claimed], *, again: bool) -> dict[str, Any]:
    results = [deferred(c, AGAIN) if again else finished(c, DELIVERED, "success") for c in claimed]
    return {"worker": WORKER} | _results(results) | _notices(results, lambda _: True)


STATEMENTS = {
    "result_record_if_claimed": lambda claimed: _recorded(claimed, again=False),
    "result_record_success_if_claimed": lambda claimed: _recorded(claimed, again=False),
    "result_record_if_claimed, deferred": lambda claimed: _recorded(claimed, again=True),
    "claim_extend_if_ours": lambda claimed: fence(claimed) | {"lease": timedelta(minutes=15)},
    "claim_park_if_ours": lambda claimed: (
        fence(claimed) | {"seconds": numbers(1.0 for _ in claimed), "reasons": texts("full" for _ in claimed)}
    ),
    "claim_release_if_ours": fence,
}


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_no_recipient_is_compared_with_all_others(factory: Factory, statement: str) -> None:
    factory.rows(MANY, partid="1")
    connection = await database.connect(factory.uri, WORKER)
    try:
        claimed = await Claimer("true", WORKER, Claim()).take(connection, MANY)
        assert len(claimed) == MANY
        values = {"now": None} | STATEMENTS[statement](claimed)
        text, names = numbered(filled_query(statement.partition(",")[0], among=among(Leaves().named(claimed))))
        await database.fetch(connection, "connection_walk")
        await connection.execute(b"PREPARE asked AS " + text)
        given = psycopg.AsyncClientCursor(connection).mogrify(
            ",".join(["%s"] * len(names)), [values[name] for name in names]
        )
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked ({given})"
        [[[plan]]] = await (await connection.execute(explain.encode())).fetchall()
    finally:
        await connection.close()
    removed = [node.get("Rows Removed by Join Filter", 0) for node in nodes(plan["Plan"])]
    assert max(map(rows_read, nodes(plan["Plan"]))) <= 2 * MANY
    assert max(removed) <= MANY
    assert plan["Plan"]["Actual Rows"] * plan["Plan"]["Actual Loops"] == MANY
