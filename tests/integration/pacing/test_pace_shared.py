"""test_pace_shared — workers that share a limit never exceed it together, even if one dies or is cut off

Owns: proofs about queued/pacing/pace_shared.py and pace_share of sql/schema/12_pacing.sql.
"""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.rows import namedtuple_row

from queued.pacing import pace_shared
from queued.pacing.pace import Fields, Paces, Turn
from queued.pacing.pace_shared import Shares
from queued.waiting.deferral import Deferral
from shared.config.queued.pacing import Pacing
from shared.postgres import database as db
from tests.fixtures.database.asked import asking
from tests.fixtures.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.database.factory import Factory

MAIL = Fields("default", "example.com")
LEASE = timedelta(seconds=30)
_SHARE = """SELECT * FROM pillarbox.pace_share(
    'k', %(worker)s, %(now)s::timestamptz, %(rate)s::double precision, %(burst)s::integer,
    %(give)s, %(want)s, %(most)s::integer, %(keep)s, %(more)s, %(lease)s)"""


@pytest.fixture
async def pool(database: str) -> AsyncIterator[db.Pool]:
    opened = await db.open_pool(database, "paces", 4)
    yield opened
    await opened.close()


def sharing(**limits: Any) -> Paces:
    """Paces of one worker with one shared policy for each destination."""
    policy = {"id": "p", "fields": ["destination"], "shared": True, **limits}
    return Paces(Pacing.model_validate({"policies": [policy]}))


class Table:
    """One worker's calls of pace_share, at times of the test's own."""

    def __init__(self, pool: db.Pool, worker: str) -> None:
        self._pool = pool
        self._worker = worker

    async def share(self, now: str = "2026-01-01 00:00:00Z", **values: Any) -> Any:
        """The grant."""
        asked: dict[str, Any] = {
            "rate": None,
            "burst": None,
            "give": 0,
            "want": 0,
            "most": None,
            "keep": 0,
            "more": 0,
            "lease": LEASE,
            **values,
        }
        async with self._pool.connection() as connection, connection.cursor(row_factory=namedtuple_row) as cursor:
            await cursor.execute(_SHARE, {"worker": self._worker, "now": now, **asked})
            return await cursor.fetchone()


async def until_turn(paces: Paces, fields: Fields = MAIL) -> Turn:
    """Ask until there is a turn, as soon as it may be free."""
    async with asyncio.timeout(PATIENCE):
        while True:
            asked = paces.ask(fields)
            if isinstance(asked, Turn):
                return asked
            await asyncio.sleep(min(asked.seconds, 0.05))


async def test_tokens_are_granted_once(pool: db.Pool) -> None:
    one, two = Table(pool, "one"), Table(pool, "two")
    rate: dict[str, Any] = {"rate": 10.0, "burst": 10}
    assert (await one.share(**rate, want=7)).tokens == 7
    row = await two.share(**rate, want=7)
    assert (row.tokens, round(row.seconds, 3)) == (3, 0.1)
    assert (await two.share("2026-01-01 00:00:00.5Z", **rate, want=9)).tokens == 5
    assert (await one.share("2026-01-01 00:00:00.5Z", **rate, give=2)).tokens == 0
    assert (await two.share("2026-01-01 00:00:00.5Z", **rate, want=9)).tokens == 2
    assert (await two.share("2026-01-01 01:00:00Z", **rate, want=99)).tokens == 10


async def test_a_clock_put_back_gives_no_tokens_and_the_limit_goes_on_from_there(pool: db.Pool) -> None:
    one = Table(pool, "one")
    rate: dict[str, Any] = {"rate": 10.0, "burst": 10}
    assert (await one.share("2026-01-01 01:00:00Z", **rate, want=99)).tokens == 10
    assert (await one.share("2026-01-01 00:00:00Z", **rate, want=99)).tokens == 0
    assert (await one.share("2026-01-01 00:00:00.5Z", **rate, want=99)).tokens == 5


async def test_slots_and_turns_from_before_the_clock_was_put_back_do_not_count(pool: db.Pool) -> None:
    gone, waiting, one = (Table(pool, name) for name in ("gone", "waiting", "one"))
    assert (await gone.share("2026-01-01 02:00:00Z", most=1, more=1)).slots == 1
    assert (await waiting.share("2026-01-01 02:00:00Z", most=1, more=1)).slots == 0
    assert (await one.share("2026-01-01 00:00:00Z", most=1, more=1)).slots == 1  # and neither of them is heard of again
    assert (await waiting.share("2026-01-01 00:00:01Z", most=1, more=1)).slots == 0
    assert (await gone.share("2026-01-01 00:00:02Z", most=1, more=1)).slots == 0
    assert (await one.share("2026-01-01 00:00:03Z", most=1)).starved
    assert (await gone.share("2026-01-01 00:00:04Z", most=1, more=1)).slots == 0  # it came after the other
    assert (await waiting.share("2026-01-01 00:00:04Z", most=1, more=1)).slots == 1


async def test_a_slot_has_one_holder_and_expires(pool: db.Pool) -> None:
    one, two = Table(pool, "one"), Table(pool, "two")
    assert (await one.share(most=3, more=5)).slots == 3
    assert (await two.share(most=3, more=1)).slots == 0
    assert (await one.share(most=3, keep=3)).starved  # two waits for its first
    assert (await one.share(most=3, keep=2)).slots == 0
    assert (await two.share(most=3, more=5)).slots == 1
    assert (await two.share("2026-01-01 00:00:29Z", most=3, keep=1, more=5)).slots == 0
    assert (await two.share("2026-01-01 00:00:31Z", most=3, keep=1, more=5)).slots == 2  # one was not heard of again


async def test_the_longest_waiting_worker_gets_a_free_slot(pool: db.Pool) -> None:
    one, two, three = (Table(pool, name) for name in ("one", "two", "three"))
    assert (await one.share(most=1, more=1)).slots == 1
    assert (await three.share("2026-01-01 00:00:01Z", most=1, more=1)).slots == 0
    assert (await two.share("2026-01-01 00:00:02Z", most=1, more=1)).slots == 0
    assert (await one.share("2026-01-01 00:00:02Z", most=1)).starved
    assert (await one.share("2026-01-01 00:00:02Z", most=1, more=1)).slots == 0
    assert (await two.share("2026-01-01 00:00:02.5Z", most=1, more=1)).slots == 0
    assert (await three.share("2026-01-01 00:00:02.5Z", most=1, more=1)).slots == 1


async def test_a_lost_answer_wastes_no_slot_for_good(pool: db.Pool) -> None:
    one = Table(pool, "one")
    assert (await one.share(most=3, more=3)).slots == 3  # the answer never came
    assert (await one.share(most=3, keep=0, more=2)).slots == 2
    assert (await Table(pool, "two").share(most=3, more=3)).slots == 1


async def test_many_workers_at_once_never_exceed_slots_or_tokens(pool: db.Pool, factory: Factory) -> None:
    rolls = random.Random(5)
    held: dict[str, int] = {}
    tokens = 0

    async def work(name: str) -> None:
        nonlocal tokens
        table = Table(pool, name)
        for _ in range(25):
            held[name] = rolls.randint(0, held.get(name, 0))  # gives some up, then says so
            row = await table.share(rate=1.0, burst=40, want=rolls.randint(0, 3), most=7, keep=held[name], more=4)
            held[name] += row.slots
            tokens += row.tokens
            assert sum(held.values()) <= 7

    await asyncio.gather(*(work(f"w{n}") for n in range(4)))
    assert tokens <= 40
    [row] = factory.sql("SELECT sum(slots) AS slots FROM pillarbox.pace_shares")
    assert row.slots == sum(held.values())


async def test_two_workers_share_the_slots_of_one_limit(pool: db.Pool, factory: Factory) -> None:
    one, two = sharing(concurrency=1), sharing(concurrency=1)
    running = [asyncio.create_task(one.run(pool, "one")), asyncio.create_task(two.run(pool, "two"))]
    under_way = most = done = 0

    async def deliver(paces: Paces) -> None:
        nonlocal under_way, most, done
        for _ in range(5):
            turn = await until_turn(paces)
            under_way += 1
            most = max(most, under_way)
            await asyncio.to_thread(lambda: None)
            under_way -= 1
            done += 1
            turn.done()

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(deliver(one), deliver(two))
    assert (most, done) == (1, 10)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await one.leave(pool)
    await two.leave(pool)
    [row] = factory.sql("SELECT coalesce(sum(slots), 0) AS slots FROM pillarbox.pace_shares")
    assert row.slots == 0


async def test_a_limit_removed_while_a_worker_stops_does_no_harm(
    pool: db.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    paces = sharing(concurrency=1)
    running = asyncio.create_task(paces.run(pool, "one"))
    for domain in ("a.example", "b.example"):
        await until_turn(paces, Fields("default", domain))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    shares, returned = paces.shares, list[object]()

    async def share(_: object, plans: Any) -> None:
        returned.extend(plans)
        shares._active.clear()

    monkeypatch.setattr(pace_shared, "_AT_ONCE", 1)
    monkeypatch.setattr(shares, "_share", share)
    await paces.leave(pool)
    assert len(returned) == 2


async def test_mail_of_a_tenant_with_an_endless_name_has_its_turn_and_delays_no_other(pool: db.Pool) -> None:
    """PostgreSQL refused the name, with the requests of all other mail in that round, and in each one after it."""
    policy = {"id": "p", "fields": ["tenant"], "shared": True, "rate": "100/sec"}
    paces = Paces(Pacing.model_validate({"policies": [policy]}))
    endless = token_hex(30_000)
    running = asyncio.create_task(paces.run(pool, "one"))
    try:
        (await until_turn(paces, MAIL._replace(tenant=endless))).done()
        (await until_turn(paces, MAIL._replace(tenant="acme"))).done()
        (await until_turn(paces, MAIL._replace(tenant=endless + "x"))).done()
    finally:
        running.cancel()
        await asyncio.wait([running])
    async with pool.connection() as connection:
        found = await connection.execute("SELECT key FROM pillarbox.pace_limits")
        assert len({key for (key,) in await found.fetchall()}) == 3


async def test_unused_slots_and_tokens_are_returned(pool: db.Pool, factory: Factory) -> None:
    paces = sharing(concurrency=5, rate="5/sec")
    running = asyncio.create_task(paces.run(pool, "one"))
    turn = await until_turn(paces)
    turn.done(unused=True)

    def returned() -> bool:
        [row] = factory.sql(
            "SELECT coalesce(sum(slots), 0) AS slots, (SELECT tokens FROM pillarbox.pace_limits) AS tokens"
            " FROM pillarbox.pace_shares"
        )
        return bool(row.slots == 0 and row.tokens == 5)

    await eventually(returned, "slots and tokens go back")
    await eventually(lambda: not paces.shares._active, "nothing is looked after any more")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_without_postgresql_shared_limits_defer_mail_without_blocking(database: str) -> None:
    pool = await db.open_pool(database, "paces", 1)
    await pool.close()
    paces = sharing(concurrency=5)
    running = asyncio.create_task(Shares.run(paces.shares, pool, "one"))
    for _ in range(3):
        assert isinstance(paces.ask(MAIL), Deferral)
        await asyncio.sleep(0)
    assert isinstance(Paces().ask(MAIL), Turn)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_unused_limits_are_deleted(pool: db.Pool, factory: Factory) -> None:
    one = Table(pool, "one")
    await one.share("2026-01-01 00:00:00Z", rate=1.0, burst=10, want=5, most=2, more=1)
    async with pool.connection() as connection:
        factory.sql("SELECT pillarbox.pace_forget('2026-01-01 00:00:20Z')")
        assert factory.sql("SELECT FROM pillarbox.pace_limits")
        await db.fetch(connection, "pace_forget")
    assert not factory.sql("SELECT FROM pillarbox.pace_limits")
    assert not factory.sql("SELECT FROM pillarbox.pace_shares")


async def test_a_worker_does_not_poll_a_slow_rate(pool: db.Pool) -> None:
    one, two = sharing(rate="1/hour"), sharing(rate="1/hour")
    running = [asyncio.create_task(one.run(pool, "one")), asyncio.create_task(two.run(pool, "two"))]
    (await until_turn(one)).done()
    assert isinstance(two.ask(MAIL), Deferral)
    await eventually(lambda: wait_of(two) > 500, "the other worker gets a time to ask again")
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def wait_of(paces: Paces) -> float:
    """Seconds this worker lets such mail wait."""
    asked = paces.ask(MAIL)
    return asked.seconds if isinstance(asked, Deferral) else 0.0


async def test_a_worker_cut_off_from_postgresql_keeps_only_its_running_slots(pool: db.Pool) -> None:
    now = 0.0
    policy = {"id": "p", "fields": ["destination"], "shared": True, "concurrency": 3}
    paces = Paces(Pacing.model_validate({"policies": [policy]}), clock=lambda: now)
    for _ in range(3):
        assert isinstance(paces.ask(MAIL), Deferral)
    await paces.shares.round(pool)
    assert isinstance(paces.ask(MAIL), Turn)
    now = LEASE.total_seconds() + 1  # two slots are left, and have lapsed
    assert isinstance(paces.ask(MAIL), Deferral)
    [gauge] = paces.shares._active.values()
    plan = gauge.plan(now)
    assert plan is not None
    assert (plan.keep, plan.more) == (1, 1)


async def test_a_lowered_limit_holds_under_load(pool: db.Pool) -> None:
    """Two workers that never rest, each with more slots than all may have by the new configuration."""
    workers = {name: sharing(concurrency=8) for name in ("one", "two")}
    running = [asyncio.create_task(paces.run(pool, name)) for name, paces in workers.items()]
    out: dict[str, list[Turn]] = {name: [] for name in workers}
    for name, paces in workers.items():
        out[name] += [await until_turn(paces) for _ in range(4)]
    lowered = {"id": "p", "fields": ["destination"], "shared": True, "concurrency": 2}
    for paces in workers.values():
        paces.use(Pacing.model_validate({"policies": [lowered]}), {})

    def busy() -> int:
        """One delivery after the other: each one that ends, and every other event, starts the loop again."""
        for name, paces in workers.items():
            ended, out[name] = out[name], []
            for turn in ended:
                turn.done()
                while isinstance(asked := paces.ask(MAIL), Turn):
                    out[name].append(asked)
        return sum(map(len, out.values()))

    await eventually(lambda: busy() <= 2, "the lower limit holds")
    for _ in range(20):
        assert busy() <= 2
        await asyncio.sleep(0)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_hundreds_of_limits_are_fetched_by_few_statements_in_one_order(
    pool: db.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that lock the same limits wait for each other, and not in a circle."""
    workers = [sharing(rate="100/sec", fields=["destination"]) for _ in range(2)]
    domains = [f"d{number}.example" for number in range(300)]
    for paces, order in zip(workers, (domains, domains[::-1]), strict=True):
        for domain in order:
            assert isinstance(paces.ask(Fields("default", domain)), Deferral)
    asked = asking(monkeypatch)
    await asyncio.gather(*(paces.shares.round(pool) for paces in workers))
    assert asked.count("pace_share") == 4
    for paces in workers:
        assert all(isinstance(paces.ask(Fields("default", domain)), Turn) for domain in domains)
