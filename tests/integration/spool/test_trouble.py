"""test_trouble — poison, lost connections and outages: only the bad message is refused, and kept mail is answered

Owns: proofs about shared/spool/spool.py when something goes wrong at each point before, during and after COMMIT.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shared.errors import SpoolUnavailable
from tests.fixtures.daemons.submissions import SPOOL, recipient, running_spool, submission
from tests.fixtures.heard import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    import psycopg

    from shared.spool.spool import Spool
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard


@pytest.fixture
def stalled(factory: Factory) -> Iterator[psycopg.Connection[Any]]:
    """A session that keeps every commit of the spool from going on until it rolls back."""
    holding: AbstractContextManager[psycopg.Connection[Any]] = factory.another()
    with holding as other:
        other.execute("LOCK TABLE pillarbox.queue IN EXCLUSIVE MODE")
        yield other


async def committing(spool: Spool, factory: Factory, **fields: Any) -> asyncio.Task[None]:
    """A submission that has been taken and is held up in its transaction."""
    submitting = asyncio.create_task(spool.submit(submission(**fields)))
    await until(lambda: factory.waiting(SPOOL), "the spool to wait for the lock")
    return submitting


@pytest.mark.parametrize(
    "poison",
    [
        {"recipients": (recipient("1", metadata={"key": "a\0b"}),)},  # refused by the server
        {"senderhelo": "a\0b"},  # refused by the driver
        {"senderhelo": "a\ud800b"},  # cannot even be encoded
    ],
    ids=["server", "driver", "surrogate"],
)
async def test_only_the_invalid_message_of_a_group_is_refused(
    factory: Factory, heard: Heard, poison: dict[str, Any]
) -> None:
    async with running_spool(factory.uri) as spool:
        good = [submission() for _ in range(4)]
        bad = submission(**poison)
        outcomes = await asyncio.gather(
            *(spool.submit(each) for each in (*good[:2], bad, *good[2:])), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [type(None), type(None), SpoolUnavailable, *[type(None)] * 2]
        await spool.submit(submission())
    assert [refused["id"] for refused in heard.all("spool.refused")] == [bad.id]
    assert set(factory.bodies()) >= {each.id for each in good}
    assert bad.id not in factory.bodies()
    assert factory.one("SELECT count(*) FROM pillarbox.queue") == 5


async def test_a_client_gone_before_the_commit_stores_nothing(
    factory: Factory, heard: Heard, stalled: psycopg.Connection[Any]
) -> None:
    async with running_spool(factory.uri) as spool:
        first = await committing(spool, factory)
        gone, stays = submission(), submission()
        leaving, staying = asyncio.create_task(spool.submit(gone)), asyncio.create_task(spool.submit(stays))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        stalled.rollback()
        await asyncio.gather(first, staying)
    assert [abandoned["id"] for abandoned in heard.all("spool.abandoned")] == [gone.id]
    assert gone.id not in factory.bodies()
    assert stays.id in factory.bodies()


async def test_a_client_gone_during_the_commit_is_committed_and_logged(
    factory: Factory, heard: Heard, stalled: psycopg.Connection[Any]
) -> None:
    async with running_spool(factory.uri) as spool:
        submitting = await committing(spool, factory, senderip="192.0.2.77")
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting
        stalled.rollback()
        [lost] = await heard.wait("spool.reply_lost")
    assert lost["client"] == "192.0.2.77"
    [body] = factory.bodies().values()
    assert (body.id, body.refcount) == (lost["id"], 1)


async def test_a_backend_killed_during_the_commit_refuses_its_group_only(
    factory: Factory, heard: Heard, stalled: psycopg.Connection[Any]
) -> None:
    async with running_spool(factory.uri) as spool:
        submitting = await committing(spool, factory)
        assert factory.terminate(SPOOL) == 1
        with pytest.raises(SpoolUnavailable):
            await submitting
        stalled.rollback()
        after = submission()
        await spool.submit(after)
    assert len(heard.all("spool.unavailable")) == 1
    assert set(factory.bodies()) == {after.id}


async def test_idle_backends_that_are_killed_lose_no_message(factory: Factory, heard: Heard) -> None:
    async with running_spool(factory.uri, committers=2) as spool:
        await asyncio.gather(*(spool.submit(submission()) for _ in range(20)))
        assert factory.terminate(SPOOL) >= 1
        for _ in range(3):
            await spool.submit(submission())
    assert heard.all("spool.unavailable") == []
    assert factory.one("SELECT count(*) FROM pillarbox.messages") == 23


async def test_a_commit_over_the_time_limit_is_given_up(
    factory: Factory, heard: Heard, stalled: psycopg.Connection[Any]
) -> None:
    async with running_spool(factory.uri, timeout="2s") as spool:
        with pytest.raises(SpoolUnavailable):
            await spool.submit(submission())
        await until(lambda: not factory.waiting(SPOOL), "the server to forget the transaction")
        stalled.rollback()
        await spool.submit(submission())
    assert len(heard.all("spool.unavailable")) == 1
    assert factory.one("SELECT count(*) FROM pillarbox.messages") == 1


async def test_messages_over_the_limit_are_refused_at_once(factory: Factory, stalled: psycopg.Connection[Any]) -> None:
    async with running_spool(factory.uri, maxpending=1000) as spool:
        first = await committing(spool, factory)
        waiting = asyncio.create_task(spool.submit(submission(content=b"x" * 900)))
        await asyncio.sleep(0)
        with pytest.raises(SpoolUnavailable, match="bytes wait"):
            await spool.submit(submission(content=b"x" * 101))
        stalled.rollback()
        await asyncio.gather(first, waiting)
        await spool.submit(submission(content=b"x" * 101))
    assert factory.one("SELECT count(*) FROM pillarbox.messages") == 3


async def test_an_unreachable_server_is_one_line_and_stores_no_message(heard: Heard, tmp_path: object) -> None:
    async with running_spool(f"postgresql:///nowhere?host={tmp_path}&password=secret") as spool:
        with pytest.raises(SpoolUnavailable) as refusal:
            await spool.submit(submission())
    assert "\n" not in str(refusal.value)
    assert "secret" not in str(refusal.value)
    assert "secret" not in str(heard.all("spool.unavailable"))
