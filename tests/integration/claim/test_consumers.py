"""test_consumers — several workers share a queue: each row once, in order of class and time, until a worker dies

Owns: proofs about whole workers' claims: how many at once, which order, how a heartbeat keeps a claim, and the end
    of an attempt with a lost claim. test_concurrent_claims.py has the claim alone against holds and releases.
See: queued/dispatch.py, heartbeat; sql/README.md, "Claims".
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from queued.claiming.claim import Claimer
from queued.result import Recorder
from queued.values import Claimed
from scripts.sink.server import Sink
from shared.config.queued.settings import Claim
from shared.postgres import database as db
from tests.fixtures.daemons.dispatching import dispatching
from tests.fixtures.database.results import DELIVERED, WORKER, finished
from tests.fixtures.heard import until
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

ROWS, BATCH = 1000, 20
LEASE = timedelta(seconds=2)
SETTINGS = Claim.model_validate({"lease": "15m", "poll": "1ms"})


async def consume(uri: str, name: str, left: asyncio.Event, ready: asyncio.Barrier) -> list[int]:
    """Claim and settle until nothing is queued: an empty claim may only mean that the others hold the rest."""
    pool = await db.open_pool(uri, name, 1)
    claimer, recorder = Claimer("true", name, SETTINGS), Recorder(pool, name, 1)
    taken: list[int] = []
    async with pool.connection():
        await ready.wait()  # else the first may have done it all before the last is connected
    while not left.is_set():
        async with pool.connection() as connection:
            got = await claimer.take(connection, BATCH)
        taken += [c.id for c in got]
        if got:
            await recorder._record([finished(c, DELIVERED, "success") for c in got])
            continue
        async with pool.connection() as connection:
            cursor = await connection.execute("SELECT count(*) FROM pillarbox.queue")
            if await cursor.fetchone() == (0,):
                left.set()
    await pool.close()
    return taken


@pytest.mark.parametrize("consumers", [2, 4, 8])
async def test_each_of_a_thousand_rows_is_consumed_exactly_once(factory: Factory, heard: Heard, consumers: int) -> None:
    messages = [factory.message() for _ in range(10)]
    for partid, message in zip(("1", "2", "4", "6", None) * 2, messages, strict=True):
        factory.rows(ROWS // 10, partid=partid, message=message)
    ids = [row.id for row in factory.queue()]
    left, ready = asyncio.Event(), asyncio.Barrier(consumers)
    async with asyncio.timeout(PATIENCE):
        shares = await asyncio.gather(*(consume(factory.uri, f"consumer-{n}", left, ready) for n in range(consumers)))
    assert Counter(id_ for share in shares for id_ in share) == Counter(ids)
    assert sum(bool(share) for share in shares) > 1, "one did it all: nothing was proven"
    assert [row.id for row in factory.archive()] == ids
    assert Counter(row.queue__id for row in factory.attempts()) == Counter(ids)
    assert heard.all("claim.lost") == heard.all("claim.expired") == []
    bodies = factory.bodies()
    assert {(body.refcount, body.counted, body.released is None) for body in bodies.values()} == {(0, 0, False)}


async def test_urgent_mail_is_first_and_bulk_last_and_each_class_in_order_of_time(factory: Factory) -> None:
    """In any leaf, and with any priority within the class."""
    wanted: dict[int, list[int]] = {1: [], 0: [], -1: []}
    for n, priority in enumerate([0, -9, 4, 0, 9, -1, 1, 0, -5] * 3):
        id_ = factory.row(due=timedelta(minutes=n - 60), partid=("1", "4", None)[n % 3])
        factory.sql("UPDATE pillarbox.queue SET priority = %(p)s WHERE id = %(id)s", p=priority, id=id_)
        wanted[(priority > 0) - (priority < 0)].append(id_)
    connection = await db.connect(factory.uri, "worker")
    claimer = Claimer("true", "worker", SETTINGS.model_copy(update={"ordinary": 0.0}))
    taken = [c.id for _ in range(7) for c in await claimer.take(connection, 4)]
    await connection.close()
    assert taken == wanted[1] + wanted[0] + wanted[-1]


async def test_a_heartbeat_renews_leases_and_reports_lost_claims(factory: Factory) -> None:
    factory.rows(3)
    connection = await db.connect(factory.uri, "worker")
    mine = Claimer("true", "mine", Claim.model_validate({"lease": "10m"}))
    theirs = Claimer("true", "theirs", SETTINGS)
    kept, lost, settled = await mine.take(connection, 10)
    factory.sql("UPDATE pillarbox.queue SET lease_until = now() - interval '1 second'")
    assert await mine.extend(connection, [kept]) == {(kept.id, kept.token): True}
    factory.sql("DELETE FROM pillarbox.queue WHERE id = %(id)s", id=settled.id)
    [other] = await theirs.take(connection, 10)
    assert other.id == lost.id
    assert await mine.extend(connection, [kept, lost, settled]) == {(kept.id, kept.token): True}
    assert await theirs.take(connection, 10) == []
    with factory.another() as operator:
        operator.execute("SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE", (kept.id,))
        assert await mine.extend(connection, [kept]) == {(kept.id, kept.token): False}
    await connection.close()
    rows = {row.id: row for row in factory.queue()}
    assert (rows[kept.id].worker, rows[lost.id].worker) == ("mine", "theirs")
    assert rows[kept.id].lease_until - rows[kept.id].last_retry > timedelta(minutes=10)


def slow(factory: Factory, seconds: int) -> int:
    """A recipient with a final reply that the sink delays for so long."""
    message = factory.message()
    return int(
        factory.one(
            """INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain, size, metadata)
               VALUES (%(message)s, %(local)s, 'example.com', 10, '{"_partid": "1"}') RETURNING id""",
            message=message,
            local=f"r.slow{seconds}",
        )
    )


async def rival_claims(uri: str, over: asyncio.Event) -> list[Claimed]:
    """Another worker that looks for work the whole time."""
    connection = await db.connect(uri, "rival")
    rival, got = Claimer("true", "rival", SETTINGS), list[Claimed]()
    while not over.is_set():
        got += await rival.take(connection, 10)
    await connection.close()
    return got


@pytest.mark.slow
async def test_a_delivery_longer_than_its_lease_is_made_once(factory: Factory, heard: Heard) -> None:
    id_ = slow(factory, 7)  # more than three leases
    over = asyncio.Event()
    async with Sink() as sink, dispatching(factory.uri, sink.port, LEASE) as dispatcher:
        await until(lambda: dispatcher.inflight == 1)
        looking = asyncio.create_task(rival_claims(factory.uri, over))
        await until(factory.archive)
        over.set()
        assert await looking == []
    assert len(sink.received) == 1
    [archived], [attempt] = factory.archive(), factory.attempts()
    assert (archived.id, archived.result, archived.worker, archived.retry_count) == (id_, "success", WORKER, 1)
    assert attempt.outcome == "delivered"
    assert attempt.duration > 3 * LEASE
    assert heard.all("claim.ended") == heard.all("claim.expired") == []


@pytest.mark.slow
async def test_without_heartbeats_an_attempt_ends_with_its_lease(factory: Factory, heard: Heard) -> None:
    """The next claim of the row must not send at the same time."""
    id_ = slow(factory, 600)
    async with Sink() as sink, dispatching(factory.uri, sink.port, LEASE, beats=False):
        [ended, *_] = await heard.wait("claim.ended")
        assert ended["recipients"] == 1
        await until(lambda: heard.all("claim.expired"))
        await sink.wait_for(2)
    assert {row.outcome for row in factory.attempts()} == {"lease_expired"}
    assert [row.id for row in factory.queue()] == [id_]


@pytest.mark.slow
async def test_an_attempt_with_a_lost_claim_ends_at_the_next_heartbeat(factory: Factory, heard: Heard) -> None:
    slow(factory, 600)
    async with Sink() as sink, dispatching(factory.uri, sink.port, LEASE) as dispatcher:
        await sink.wait_for(1)
        taken = factory.lease([row.id for row in factory.queue()], ends=timedelta(hours=1), worker="thief@host:1")
        await heard.wait("claim.ended")
        await until(lambda: dispatcher.inflight == 0)
    [row] = factory.queue()
    assert (row.token, row.worker) == (taken, "thief@host:1")
    assert len(sink.received) == 1
    assert factory.attempts() == []
