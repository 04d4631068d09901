"""test_suspects — mail with a lost claim is found at once, however much other mail is due

Owns: proofs about the part of claim.sql that takes suspects: which ones, in which order, and the pages read.
See: queued/claiming/claim.py; sql/schema/03_queue.sql; test_plan.py for the plans of ordinary claims.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from queued.claiming.claim import NO_FLOORS, NOTHING_LOST, Claimer
from shared.config.queued.settings import Claim
from shared.postgres import database as db
from shared.postgres.queries import where_query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.database.factory import Factory

pytestmark = pytest.mark.counts_pages

DUE = 20_000
ONE_LEAF = "metadata->>'_partid' IN ('1','2','3')"
VALUES = {
    "now": None,
    **NO_FLOORS,
    "ordinary": 0,
    "retried": 0,
    "worker": "w",
    "lease": timedelta(minutes=15),
    "token": 1,
}
PAST = timedelta(seconds=-1)


def lose(factory: Factory, ids: list[int], times: int = 2) -> None:
    """As if so many claims in a row had ended without a result; the last one's token is still there."""
    factory.lease(ids, ends=PAST)
    factory.sql("UPDATE pillarbox.queue SET lost_count = %(n)s WHERE id = ANY(%(ids)s)", n=times - 1, ids=ids)


def take(factory: Factory, batch: int, *, suspects: bool) -> list[int]:
    """The rows of one claim, in their order."""
    values = VALUES | {"batch": batch, "suspects": suspects}
    with psycopg.connect(factory.uri, autocommit=True) as session:
        return [id_ for id_, *_ in session.execute(where_query("claim", ONE_LEAF, **NOTHING_LOST), values)]


def test_mail_lost_twice_is_claimed_separately_urgent_first(factory: Factory) -> None:
    ordinary = factory.rows(3)
    once, twice, thrice, urgent = (factory.row() for _ in range(4))
    lose(factory, [once], 1)
    lose(factory, [twice, urgent], 2)
    lose(factory, [thrice], 3)
    factory.sql("UPDATE pillarbox.queue SET priority = 5 WHERE id = %(id)s", id=urgent)
    assert take(factory, 2, suspects=True) == [urgent, twice]
    assert take(factory, 9, suspects=True) == [thrice]
    assert take(factory, 9, suspects=False) == [*ordinary, once]
    assert [row.lost_count for row in factory.queue(once, twice, thrice, urgent)] == [1, 2, 3, 2]


def test_lost_mail_that_is_leased_held_or_not_due_is_not_claimed(factory: Factory) -> None:
    leased, later, held, elsewhere = factory.row(), factory.row(due=timedelta(hours=1)), factory.row(), factory.row()
    lose(factory, [leased, later, held, elsewhere])
    factory.lease([leased], ends=timedelta(hours=1))
    factory.move([held], "HOLD")
    factory.sql("""UPDATE pillarbox.queue SET metadata = '{"_partid": "4"}' WHERE id = %(id)s""", id=elsewhere)
    assert take(factory, 9, suspects=True) == []


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", []):
        yield from nodes(below)


@pytest.mark.parametrize("analyzed", [False, True])
async def test_the_search_does_not_scan_a_due_backlog(factory: Factory, *, analyzed: bool) -> None:
    """By the plan that a worker's own connection keeps, whether PostgreSQL has figures about the leaf or none."""
    factory.sql("ALTER TABLE pillarbox.queue_def_123 SET (autovacuum_enabled = off)")
    pool = await db.open_pool(factory.uri, "worker", 1, in_order=True)
    try:
        async with pool.connection() as connection:
            claimer = Claimer(ONE_LEAF, "w", Claim.model_validate({"poll": "1ms"}))  # a full pass each time
            for _ in range(10):
                await claimer.take(connection, 1)
            factory.rows(DUE)
            if analyzed:
                factory.sql("ANALYZE pillarbox.queue_def_123")
            [[name, generic]] = await (
                await connection.execute(
                    "SELECT name, generic_plans FROM pg_prepared_statements WHERE statement LIKE '%lost_since%'"
                )
            ).fetchall()
            assert generic > 0, "this plan was not kept"
            asked = where_query("claim", ONE_LEAF, **NOTHING_LOST)
            order = sorted(
                ["now", *NO_FLOORS, "batch", "ordinary", "retried", "worker", "lease", "suspects", "token"],
                key=lambda n: asked.index(f"%({n})s"),
            )
            given = {**dict.fromkeys(order, "NULL"), "batch": "1", "retried": "0", "worker": "'w'", "suspects": "true"}
            given |= {"lease": "interval '15 minutes'", "ordinary": "0"}
            values = ", ".join(given[word] for word in order)
            await connection.execute("BEGIN")
            cursor = await connection.execute(
                f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE {name} ({values})".encode()
            )
            [[[plan]]] = await cursor.fetchall()
            await connection.execute("ROLLBACK")
    finally:
        await pool.close()
    whole = plan["Plan"]
    assert whole["Shared Hit Blocks"] + whole["Shared Read Blocks"] < 20
    begun = [
        n
        for n in nodes(whole)
        if n.get("Relation Name") == "queue_def_123"
        and n["Actual Loops"] > 0
        and "= ANY" not in n.get("Index Cond", "")
    ]
    assert ["lost_count" in str(n.get("Filter", "")) for n in begun] == [True], "a class of ordinary mail was looked at"


def test_claims_and_results_stay_hot_beside_the_index(factory: Factory, superuser: Factory) -> None:
    ids = factory.rows(200)
    factory.sql("VACUUM pillarbox.queue_def_123")
    superuser.sql("SELECT pg_stat_reset_single_table_counters('pillarbox.queue_def_123'::regclass)")
    assert take(factory, 100, suspects=False) == ids[:100]
    factory.sql(
        """UPDATE pillarbox.queue SET token = NULL, worker = NULL, lease_until = NULL, lost_count = 0
            WHERE id = ANY(%(ids)s)""",
        ids=ids[:100],
    )
    factory.sql("SELECT pg_stat_force_next_flush()")
    [row] = factory.sql("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'queue_def_123'")
    assert (row.n_tup_upd, row.n_tup_hot_upd) == (200, 200)
