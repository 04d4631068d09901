"""test_answer_lost — the connection is lost while a result is recorded: it is recorded once, and notified once

Owns: proofs about queued.result.Recorder when PostgreSQL's answer to a COMMIT is lost.
See: test_trouble.py for outages in which nothing was recorded.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.database.results import DELIVERED, RECORDER, claim, deferred, finished, running_recorder
from tests.fixtures.heard import until
from tests.fixtures.peers.proxy import Proxy, relaying

if TYPE_CHECKING:
    from queued.values import Claimed, Result
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

LATER = datetime.now(UTC) + timedelta(hours=1)


def results(taken: list[Claimed], kind: str) -> list[Result]:
    if kind == "deferred":
        return [deferred(c, LATER) for c in taken]
    return [finished(c, DELIVERED, "success") for c in taken]


async def lose_the_answer(factory: Factory, proxy: Proxy, operator: Any) -> None:
    """The backend that waits for the operator's lock continues and commits, but its client gets no answer."""
    await until(lambda: factory.waiting(RECORDER), "the recorder to be at it")
    proxy.deaf()
    operator.commit()
    await until(factory.attempts, "the result to be committed")
    proxy.cut()


@pytest.mark.parametrize("kind", ["finished", "deferred"])
async def test_a_result_with_a_lost_commit_answer_is_recorded_once(factory: Factory, heard: Heard, kind: str) -> None:
    ids = factory.rows(3)
    async with relaying(factory.uri) as proxy, running_recorder(proxy.uri) as recorder:
        taken = await claim(factory.uri)
        with factory.another() as operator:
            operator.execute("SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE", (ids[1],))
            recorder.add(results(taken, kind))
            await lose_the_answer(factory, proxy, operator)
        await recorder.drained()
    assert sorted(row.queue__id for row in factory.attempts()) == ids
    assert heard.all("claim.lost") == []
    assert len(heard.all("result.delivered" if kind == "finished" else "result.deferred")) == 3
    assert len(factory.archive()) == (3 if kind == "finished" else 0)
    assert [row.token for row in factory.queue()] == [None] * (0 if kind == "finished" else 3)
    # A later try of the same mail is another token's, and recorded as ever.
    if kind == "deferred":
        factory.sql("UPDATE pillarbox.queue SET next_retry = now()")
        async with running_recorder(factory.uri) as recorder:
            recorder.add(results(await claim(factory.uri), "finished"))
            await recorder.drained()
        assert len(factory.attempts()) == 6


async def test_a_backend_that_continues_after_the_disconnect_is_waited_for(factory: Factory, heard: Heard) -> None:
    """The connection is lost before COMMIT, and the old backend comes to it while the next one is asked."""
    [id_] = factory.rows(1)
    async with relaying(factory.uri) as proxy, running_recorder(proxy.uri) as recorder:
        taken = await claim(factory.uri)
        with factory.another() as operator:
            operator.execute("SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE", (id_,))
            recorder.add(results(taken, "finished"))
            await until(lambda: factory.waiting(RECORDER), "the recorder to be at it")
            proxy.cut()
            await until(lambda: len(factory.waiting(RECORDER)) > 1, "the next try to come")
            operator.commit()
        await recorder.drained()
    assert len(factory.attempts()) == len(factory.archive()) == 1
    assert heard.all("claim.lost") == []
    assert len(heard.all("result.delivered")) == 1


async def test_a_claim_lost_earlier_is_still_reported(factory: Factory, heard: Heard) -> None:
    ours, theirs = factory.rows(2)
    async with relaying(factory.uri) as proxy, running_recorder(proxy.uri) as recorder:
        taken = await claim(factory.uri)
        factory.sql("UPDATE pillarbox.queue SET lease_until = now() WHERE id = %(id)s", id=theirs)
        [again] = await claim(factory.uri)
        assert again.id == theirs
        with factory.another() as operator:
            operator.execute("SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE", (ours,))
            recorder.add(results(taken, "finished"))
            await until(lambda: factory.waiting(RECORDER), "the recorder to be at it")
            proxy.deaf()
            operator.commit()
            await until(lambda: len(factory.attempts()) == 2, "the result to be committed")
            proxy.cut()
        await recorder.drained()
    outcomes = sorted((row.queue__id, row.outcome) for row in factory.attempts())
    assert outcomes == sorted([(ours, "delivered"), (theirs, "delivered"), (theirs, "lease_expired")])
    assert [lost["recipient_id"] for lost in heard.all("claim.lost")] == [theirs]
    assert [row.id for row in factory.queue()] == [theirs]


async def test_a_result_of_the_next_claim_is_not_taken_for_the_lost_one(factory: Factory, heard: Heard) -> None:
    """Deferred mail is due again before the outage ends, and delivered before its deferral is heard of."""
    [id_] = factory.rows(1)
    async with relaying(factory.uri) as proxy, running_recorder(proxy.uri) as recorder:
        [first] = await claim(factory.uri)
        with factory.another() as operator:
            operator.execute("SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE", (id_,))
            recorder.add([deferred(first, datetime.now(UTC))])
            await lose_the_answer(factory, proxy, operator)
        [second] = await claim(factory.uri)
        recorder.add([finished(second, DELIVERED, "success")])
        await recorder.drained()
    assert factory.queue() == []
    assert len(factory.archive()) == len(heard.all("result.delivered")) == len(heard.all("result.deferred")) == 1
    assert sorted(row.token for row in factory.attempts()) == sorted([first.token, second.token])
