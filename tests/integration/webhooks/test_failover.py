"""test-failover — after a promotion an endpoint gets each event that the standby has, with the id it had, and no other

Owns: the row W6 of the crash table of webhooks, with a standby that is in step and with one that lags.
See: sql/README.md, "Webhooks".
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from queued.webhooks.run import WebhookTask
from shared.config.queued.webhooks import Webhooks
from shared.postgres import database as db
from shared.postgres.migrate import migrate
from tests.fixtures.database.factory import Factory
from tests.fixtures.queue.hooked import Hooked, declared
from tests.fixtures.servers.postgres import LEAVES
from tests.fixtures.servers.standby import replicated
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from queued.webhooks.endpoint import Target
    from tests.fixtures.peers.web.hooks import Hooks


@contextmanager
def making(uri: str) -> Iterator[Factory]:
    """Rows on the server that takes changes."""
    with psycopg.connect(
        f"{uri}&target_session_attrs=read-write", autocommit=True, row_factory=namedtuple_row
    ) as connection:
        yield Factory(uri, connection)


async def bring(uri: str, target: Target) -> None:
    """Bring what there is to bring, as a worker that has just begun."""
    pool = await db.open_pool(uri, "webhooks", 2)
    hooked = Hooked(pool, target)
    await hooked.settled()
    await hooked.endpoint.close()
    await pool.close()


def promoted(uri: str) -> bool:
    """Whether a server takes changes."""
    with psycopg.connect(uri) as connection:
        return connection.execute("SELECT NOT pg_is_in_recovery()").fetchone() == (True,)


@pytest.mark.parametrize("lags", [False, True])
async def test_a_promotion_skips_and_invents_no_event(hooks: Callable[[], Awaitable[Hooks]], *, lags: bool) -> None:
    taker = await hooks()
    async with replicated() as pair:
        migrate(pair.both, LEAVES)
        with making(pair.both) as factory:
            target = declared(factory, taker.url, events=["held"])
            factory.rows(3, status="HOLD")
            await bring(pair.both, target)
            if lags:
                await pair.part()
            factory.rows(2, status="HOLD")
            if lags:  # what is events is lost with the primary, and its numbers are given again
                await bring(pair.both, target)
                assert len(taker.taken) == 5
            was = {row.id: str(row.message) for row in _messages(factory)}
        await pair.lose_primary()
        await pair.promote()
        await eventually(lambda: promoted(pair.standby), "the standby takes changes")
        before = len(taker.taken)
        with making(pair.both) as factory:
            await bring(pair.both, target)
            factory.rows(2, status="HOLD")
            await bring(pair.both, target)
            now = {row.id: str(row.message) for row in _messages(factory)}
        since = {(event["data"]["id"], event["data"]["message"]) for event in taker.taken[before:]}
        events = {(event["data"]["id"], event["data"]["message"], event["id"]) for event in taker.taken}
        assert {each[:2] for each in events} == {*was.items(), *now.items()}
        assert len({each[2] for each in events}) == len(events)  # one id for each, however often it came
        # Nothing that the standby has and the endpoint had is sent once more, and nothing else is left out.
        assert since == set(list(now.items())[3:])


async def test_a_worker_that_lives_on_skips_no_event_whose_number_is_given_again(
    hooks: Callable[[], Awaitable[Hooks]],
) -> None:
    taker = await hooks()

    def held() -> set[int]:
        return {event["data"]["id"] for event in taker.taken}

    async with replicated() as pair:
        migrate(pair.both, LEAVES)
        pool = await db.open_pool(pair.both, "webhooks", 2)
        task = WebhookTask(pool, "w1", Webhooks())
        with making(pair.both) as factory:
            declared(factory, taker.url, events=["held"])
            running = asyncio.create_task(task.run())
            first = factory.rows(3, status="HOLD")
            await eventually(lambda: held() == set(first), "the endpoint has the first events")
            await pair.part()
            for _ in range(300):  # transactions that are lost with the primary
                factory.sql("UPDATE pillarbox.webhooks SET batch = batch")
            after = monotonic()
            await eventually(lambda: task._history._present > after, "the worker has looked at them")
        await pair.lose_primary()
        await pair.promote()
        await eventually(lambda: promoted(pair.standby), "the standby takes changes")
        with making(pair.both) as factory:
            again = factory.rows(2, status="HOLD")
            await eventually(lambda: held() == {*first, *again}, "the endpoint has what came since")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await pool.close()


def _messages(factory: Factory) -> list[Any]:
    return factory.sql("SELECT id, messages__id AS message FROM pillarbox.queue ORDER BY id")
