"""test_metrics_queue — the queue's figures are exact while it is short, bounded when it is long, and always cheap"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from queued.metrics import Queue
from shared.postgres import database
from shared.postgres.queries import where_query
from tests.fixtures.database.plans import nodes, rows_read
from tests.fixtures.database.results import WORKER
from tests.fixtures.peers.proxy import relaying
from tests.fixtures.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from shared.observe.metrics_totals import Reading
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

HOUR = timedelta(hours=1)


async def asked(uri: str, where: str = "true") -> list[Reading]:
    pool = await database.open_pool(uri, WORKER, 1)
    try:
        return await Queue(pool, where, 15).readings()
    finally:
        await pool.close()


def by_labels(readings: list[Reading], metric: str) -> dict[tuple[str, ...], float]:
    return {reading.labels: reading.value for reading in readings if reading.metric == metric}


async def test_states_and_partitions_are_those_of_the_view(factory: Factory) -> None:
    factory.rows(3, partid="1", due=-HOUR, received=datetime.now(UTC) - 5 * HOUR)
    factory.rows(2, partid="4", due=HOUR)
    factory.rows(4, partid="4", due=HOUR, tries=2)
    factory.lease(factory.rows(2, partid="1"), ends=HOUR)
    factory.rows(5, partid="2", status="HOLD")
    factory.rows(1, partid=None)
    readings = await asked(factory.uri)
    counted = by_labels(readings, "pillarbox_queue_recipients")
    view = factory.sql(
        "SELECT state, coalesce(metadata->>'_partid', '') AS p, count(*) AS n FROM pillarbox.queue_state GROUP BY 1, 2"
    )
    assert counted == {(row.state, row.p): row.n for row in view}
    assert counted["ACTIVE", "1"] == 3
    oldest = by_labels(readings, "pillarbox_queue_oldest_seconds")
    assert 5 * 3600 <= oldest["ACTIVE", "1"] < 5 * 3600 + 600
    overdue = by_labels(readings, "pillarbox_queue_overdue_seconds")
    assert overdue.keys() == {("1",), ("",)}
    assert 3600 <= overdue["1",] < 4200
    assert by_labels(readings, "pillarbox_queue_known") == {(): 1}
    assert by_labels(readings, "pillarbox_queue_leaf_rows").keys() >= {("queue_hold",), ("queue_def_def",)}


async def test_a_worker_counts_its_own_rows_only(factory: Factory) -> None:
    factory.rows(3, partid="1")
    factory.rows(2, partid="4")
    factory.rows(2, partid="4", status="HOLD")
    readings = await asked(factory.uri, "metadata->>'_partid' IN ('1') AND recipientlocalpart NOT LIKE '%x%'")
    assert by_labels(readings, "pillarbox_queue_recipients") == {("ACTIVE", "1"): 3}


def read_by(plan: dict[str, Any]) -> int:
    """How many rows a plan's scans have read, those that a filter removed included."""
    return sum(rows_read(node) for node in nodes(plan) if "Relation Name" in node)


async def test_no_more_rows_than_the_bound_are_read(factory: Factory) -> None:
    for due in (-HOUR, HOUR):
        factory.rows(20_000, partid="1", due=due)
        factory.rows(20_000, partid="4", due=due)
    factory.rows(5000, status="HOLD")
    factory.sql("ANALYZE pillarbox.queue")
    text = re.sub(
        r"%\((\w+)\)s",
        lambda m: {"now": "NULL", "most": "1000", "series": "1000"}[m[1]],
        where_query("metrics_queue", "true"),
    )
    [[[plan]]] = factory.sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}")
    # Two leaves hold the mail, and merging them in order looks one row ahead in each.
    assert read_by(plan["Plan"]) <= 3 * 1000 + 100
    counted = by_labels(await asked(factory.uri), "pillarbox_queue_recipients")
    assert counted[("HOLD", "1")] == 1000
    assert sum(value for (state, _), value in counted.items() if state == "ACTIVE") == 1000
    assert sum(value for (state, _), value in counted.items() if state == "SCHEDULED") == 1000


async def test_the_queue_is_read_once_per_interval(factory: Factory) -> None:
    pool = await database.open_pool(factory.uri, WORKER, 1)
    try:
        queue = Queue(pool, "true", 3600)
        first = await queue.readings()
        factory.rows(3)
        assert await queue.readings() is first
        assert by_labels(await Queue(pool, "true", 3600).readings(), "pillarbox_queue_recipients") == {
            ("ACTIVE", "1"): 3
        }
    finally:
        await pool.close()


async def test_a_silent_postgresql_does_not_delay_a_scrape(factory: Factory) -> None:
    async with relaying(factory.uri) as proxy:
        pool = await database.open_pool(proxy.uri, WORKER, 1)
        queue = Queue(pool, "true", 0)
        try:
            assert by_labels(await queue.readings(), "pillarbox_queue_known") == {(): 1}
            proxy.deaf()
            queue._latest._patience = 0.1
            opened = proxy.opened
            answers = await asyncio.gather(*(queue.readings() for _ in range(10)))
            assert [by_labels(each, "pillarbox_queue_known") for each in answers] == [{(): 0}] * 10
            assert proxy.opened == opened
            proxy.cut()
            queue._latest._patience = PATIENCE
            await eventually(lambda: known(queue), "PostgreSQL answers over a connection of its own")
        finally:
            await queue.close()
            await pool.close()


async def known(queue: Queue) -> bool:
    """Whether PostgreSQL answered; the first question may meet the connection that was cut."""
    return by_labels(await queue.readings(), "pillarbox_queue_known") == {(): 1}


async def test_the_rights_of_a_worker_suffice(factory: Factory, logins: Logins) -> None:
    factory.rows(2)
    readings = await asked(logins.uri("queued"))
    assert by_labels(readings, "pillarbox_queue_recipients") == {("ACTIVE", "1"): 2}
    assert by_labels(readings, "pillarbox_queue_leaf_rows")


async def test_without_postgresql_the_queue_is_reported_as_unknown(factory: Factory) -> None:
    pool = await database.open_pool(factory.uri, WORKER, 1)
    await pool.close()
    assert by_labels(await Queue(pool, "true", 15).readings(), "pillarbox_queue_known") == {(): 0}
