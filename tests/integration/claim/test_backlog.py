"""test_backlog — a claim reads as many pages of a long queue as of an empty one

Owns: proofs about the pages that claims read beside a long queue, due and deferred, never analyzed and while an old
    snapshot keeps vacuum from removing finished rows; and about the plan that the worker's own prepared statement
    has then.
See: queued/claiming/claim.py, the floor; sql/queries/upkeep/connection.sql, connection_walk; test_plan.py for the
    plans of other conditions.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from queued.claiming.claim import NO_FLOORS, NOTHING_LOST, Claimer
from queued.result import Recorder
from shared.config.queued.settings import Claim
from shared.postgres import database as db
from shared.postgres.queries import where_query
from tests.fixtures.database.factory import Factory
from tests.fixtures.database.plans import nodes
from tests.fixtures.database.results import DELIVERED, WORKER, finished

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from queued.values import Claimed
    from tests.fixtures.servers.postgres import ServerUnderTest

LONG = 200_000  # rows in about 4,000 pages; a claim may look at some hundred
BATCH = 100
CLAIMS = 31
DUE, DEFERRED = "metadata->>'_partid' IN ('1','2','3')", "metadata->>'_partid' IN ('4','5','6')"
LEAF = {DUE: "queue_def_123", DEFERRED: "queue_def_456"}
PARTID = {DUE: "1", DEFERRED: "4"}
SETTINGS = Claim.model_validate({"lease": "15m", "poll": "1h"})
VALUES = {
    "now": "NULL",
    **dict.fromkeys(NO_FLOORS, "NULL"),
    "batch": "100",
    "ordinary": "20",
    "retried": "50",
    "worker": "'w'",
    "lease": "interval '15 minutes'",
    "suspects": "false",
    "token": "1",
}
# Received one by one, 250 a second.
_FILL = """
INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain, size, metadata, next_retry)
SELECT %(message)s, 'r' || n, 'example.com', 100, jsonb_build_object('_partid', %(partid)s::text),
       now() + %(due)s + n * interval '4 milliseconds'
  FROM generate_series(1, %(count)s) AS n
"""


def fill(factory: Factory, partid: str, count: int, due: timedelta) -> None:
    factory.sql(_FILL, message=factory.message(), partid=partid, count=count, due=due)


class Worker:
    """Claims and settles like a worker.

    read: the pages of the queue that each claim looked at; settled: those that the results of its mail did.
    """

    def __init__(self, factory: Factory, pool: db.Pool, where: str) -> None:
        self.factory = factory
        self.where = where
        self.pool = pool
        self.read: list[int] = []
        self.settled: list[int] = []
        self._claimer = Claimer(where, WORKER, SETTINGS)
        self._recorder = Recorder(pool, WORKER, 1)

    async def claim(self, wanted: int = BATCH) -> list[Claimed]:
        async with self.pool.connection() as connection:
            before = await _pages(connection)
            taken = await self._claimer.take(connection, BATCH)
            claimed = await _pages(connection)
            self.read.append(claimed - before)
            assert len(taken) == wanted
        await self._recorder._record([finished(c, DELIVERED, "success") for c in taken])
        async with self.pool.connection() as connection:
            self.settled.append(await _pages(connection) - claimed)
        return taken

    async def keep(self) -> int:
        """The pages that a heartbeat looks at, with giving its mail back."""
        async with self.pool.connection() as connection:
            taken = await self._claimer.take(connection, BATCH)
            before = await _pages(connection)
            assert all((await self._claimer.extend(connection, taken)).values())
            await self._claimer.give_back(connection, taken)
            return await _pages(connection) - before

    async def settle(self) -> None:
        """Claim so often from a nearly empty queue that the plan is kept."""
        for _ in range(20):
            fill(self.factory, PARTID[self.where], 1, timedelta(hours=-9))
            await self.claim(1)

    async def plan(self) -> list[dict[str, Any]]:
        """The nodes of the plan that the prepared statement of these claims has now."""
        async with self.pool.connection() as connection:
            [[name, generic]] = await (
                await connection.execute(
                    "SELECT name, generic_plans FROM pg_prepared_statements WHERE statement LIKE '%lost_since%'"
                )
            ).fetchall()
            assert generic > 0, "this plan was not kept: the test proves nothing"
            asked = dict.fromkeys(re.findall(r"%\((\w+)\)s", where_query("claim", self.where, **NOTHING_LOST)))
            values = ", ".join(VALUES[name] for name in asked)
            cursor = await connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE {name} ({values})".encode())
            [[[plan]]] = await cursor.fetchall()
        return list(nodes(plan["Plan"]))


async def _pages(connection: db.Connection) -> int:
    """Pages of the queue and its indexes that were looked at so far, by whomever."""
    await connection.execute("SELECT pg_stat_force_next_flush()")
    cursor = await connection.execute(
        """SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::bigint
             FROM pg_statio_user_tables WHERE schemaname = 'pillarbox' AND relname LIKE 'queue%'"""
    )
    [[pages]] = await cursor.fetchall()
    return int(pages)


@asynccontextmanager
async def worker(factory: Factory, where: str) -> AsyncIterator[Worker]:
    """A worker that has claimed so often from a nearly empty queue that its plan is settled."""
    pool = await db.open_pool(factory.uri, WORKER, 1, in_order=True)
    try:
        made = Worker(factory, pool, where)
        await made.settle()
        yield made
    finally:
        await pool.close()


@pytest.fixture
def queues(server: ServerUnderTest, template_database: str) -> Iterator[tuple[Factory, Factory]]:
    """Two databases, one for the long queue and one for the short, without vacuum and analyze."""
    with (
        server.fresh_database(template=template_database) as long,
        server.fresh_database(template=template_database) as short,
        opened(long) as beside,
        opened(short) as alone,
    ):
        yield beside, alone


@contextmanager
def opened(uri: str) -> Iterator[Factory]:
    with psycopg.connect(uri, autocommit=True, row_factory=namedtuple_row, prepare_threshold=None) as connection:
        factory = Factory(uri, connection)
        for leaf in LEAF.values():
            factory.on(leaf, "ALTER TABLE {table} SET (autovacuum_enabled = off)")
        yield factory


async def side_by_side(long: Worker, short: Worker) -> tuple[float, float]:
    """Claims in turn; the medians of the pages that one looked at.

    What follows a claim finds each row by an index, which is deeper where the queue is long.
    """
    for each in (long, short):
        each.read.clear()
        each.settled.clear()
    for _ in range(CLAIMS):
        await long.claim()
        fill(short.factory, PARTID[short.where], BATCH, timedelta(hours=-9))
        await short.claim()
    assert median(long.settled) < 3 * median(short.settled), "a result reads the leaf from end to end"
    return median(long.read), median(short.read)


def assert_walks_its_indexes(plan: list[dict[str, Any]], leaf: str) -> None:
    read = [
        node for node in plan if node.get("Relation Name", "").startswith("queue_def_") and "Scan" in node["Node Type"]
    ]
    assert {node["Relation Name"] for node in read} == {leaf}
    assert {node["Node Type"] for node in read} <= {"Index Scan", "Index Only Scan"}
    classes = [node for node in read if "next_retry" in node["Index Name"]]
    assert len({node["Index Name"] for node in classes}) == len((*NO_FLOORS, "suspect"))


@pytest.mark.slow
@pytest.mark.parametrize("emptied", [False, True], ids=["", "emptied before"])
@pytest.mark.parametrize("kind", ["due", "deferred"])
async def test_a_claim_reads_no_more_pages_in_a_long_queue(
    queues: tuple[Factory, Factory], kind: str, *, emptied: bool
) -> None:
    """Also by a plan of the time when statistics said that the leaf had pages and no rows, as after any busy hour."""
    where = {"due": DUE, "deferred": DEFERRED}[kind]
    async with worker(queues[0], where) as long, worker(queues[1], where) as short:
        if emptied:
            fill(queues[0], PARTID[where], 3000, timedelta(hours=3))
            queues[0].sql("DELETE FROM pillarbox.queue")
            queues[0].sql("ANALYZE pillarbox.queue")
            await long.settle()
        if kind == "due":
            fill(queues[0], "1", LONG, timedelta(hours=-3))
        else:
            fill(queues[0], "4", LONG, timedelta(hours=3))
            fill(queues[0], "4", 3 * CLAIMS * BATCH, timedelta(hours=-3))
        assert_walks_its_indexes(await long.plan(), LEAF[where])
        beside, alone = await side_by_side(long, short)
        assert beside < 1.5 * alone, "a plan made for a short queue is used for a long one"
        fill(queues[1], PARTID[where], BATCH, timedelta(hours=-9))
        assert await long.keep() < 3 * await short.keep(), "a heartbeat reads the leaf from end to end"

        with queues[0].another() as old:
            old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            old.execute("SELECT count(*) FROM pillarbox.settings")
            beside, alone = await side_by_side(long, short)
            assert beside < 1.5 * alone, "finished rows are read again with every claim"
        queues[0].sql("ANALYZE pillarbox.queue")
        await long.claim()
        assert_walks_its_indexes(await long.plan(), LEAF[where])
