"""test_shares — due retries do not delay new mail, and new mail does not delay retries

Owns: proofs about the two classes of ordinary mail in claim.sql and their shares by `claim.retried`.
See: queued/claiming/claim.py; sql/schema/03_queue.sql; Postfix qmgr(8), which takes from its incoming and
    deferred queues in turn.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from queued.claiming.claim import Claimer
from shared.config.queued.settings import Claim
from shared.postgres import database

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

HOURS = timedelta(hours=-3)
_STORM = """
INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain, size, metadata, retry_count, last_error,
                             next_retry)
SELECT %(message)s, 'r' || n, 'example.com', 100, '{"_partid": "1"}', 3, '451 4.3.2 Later',
       now() - interval '3 hours' + n * interval '1 millisecond'
  FROM generate_series(1, %(count)s) AS n
"""


def retried(factory: Factory, count: int) -> None:
    """Recipients that were tried, due long ago."""
    factory.sql(_STORM, message=factory.message(), count=count)


async def take(factory: Factory, limit: int, times: int = 1, **settings: float) -> list[tuple[int, int]]:
    """How many fresh recipients and how many others each claim of one worker gets."""
    connection = await database.connect(factory.uri, "claimer")
    try:
        claimer = Claimer("true", "w", Claim.model_validate({"batch": limit, **settings}))
        taken = [await claimer.take(connection, limit) for _ in range(times)]
    finally:
        await connection.close()
    return [(sum(c.retry_count == 1 for c in each), sum(c.retry_count > 1 for c in each)) for each in taken]


async def test_new_mail_and_due_retries_have_their_shares(factory: Factory) -> None:
    retried(factory, 100)
    factory.rows(100)
    assert await take(factory, 40, 3) == [(20, 20)] * 3
    assert await take(factory, 40, 1, retried=0.1) == [(36, 4)]
    assert await take(factory, 3, 1, retried=1) == [(0, 3)]
    assert await take(factory, 3, 1, retried=0) == [(3, 0)]


async def test_single_row_claims_keep_the_shares(factory: Factory) -> None:
    retried(factory, 100)
    factory.rows(100)
    taken = await take(factory, 1, 40, batch=1)
    assert set(taken) == {(1, 0), (0, 1)}


async def test_an_unused_share_is_filled_by_the_other_kind(factory: Factory) -> None:
    retried(factory, 5)
    factory.rows(60)
    assert await take(factory, 40, 2) == [(35, 5), (25, 0)]
    retried(factory, 50)
    factory.rows(5)
    assert await take(factory, 40, 2) == [(5, 35), (0, 15)]


async def test_urgent_mail_is_first_and_bulk_mail_last(factory: Factory) -> None:
    retried(factory, 20)
    factory.rows(20)
    urgent, bulk = factory.rows(10), factory.rows(10)
    for ids, priority in ((urgent, 5), (bulk, -5)):
        factory.sql("UPDATE pillarbox.queue SET priority = %(p)s WHERE id = ANY (%(ids)s)", p=priority, ids=ids)
    connection = await database.connect(factory.uri, "claimer")
    try:
        claimer = Claimer("true", "w", Claim.model_validate({"batch": 30}))
        first, second = [await claimer.take(connection, 30) for _ in range(2)]
    finally:
        await connection.close()
    assert [c.id for c in first[:10]] == urgent
    assert [c.priority for c in first[10:]] == [0] * 20
    assert [c.priority for c in second] == [0] * 20 + [-5] * 10


@pytest.mark.slow
async def test_a_hundred_thousand_retries_that_are_due_do_not_delay_fresh_mail(factory: Factory) -> None:
    """They are all older, and in the order of time alone all of them would go first."""
    factory.sql("ALTER TABLE pillarbox.queue_def_123 SET (autovacuum_enabled = off)")
    retried(factory, 100_000)
    factory.rows(150)
    assert await take(factory, 200, 3) == [(100, 100), (50, 150), (0, 200)]


async def test_locked_retries_take_no_places(factory: Factory) -> None:
    """A claim that is not full means that nothing more is due: the worker would rest in the midst of fresh mail."""
    retried(factory, 20)
    factory.rows(100)
    with factory.another() as operator:
        operator.execute("SELECT FROM pillarbox.queue WHERE retry_count > 0 FOR UPDATE")
        assert await take(factory, 40, 2) == [(40, 0)] * 2
    assert await take(factory, 40, 1) == [(20, 20)]


async def classes(factory: Factory, limit: int, times: int = 1, **settings: float) -> list[list[int]]:
    """How many urgent recipients and how many others each claim of one worker gets."""
    connection = await database.connect(factory.uri, "claimer")
    try:
        claimer = Claimer("true", "w", Claim.model_validate({"batch": limit, **settings}))
        taken = [await claimer.take(connection, limit) for _ in range(times)]
    finally:
        await connection.close()
    return [[sum(c.priority > 0 for c in each), sum(c.priority == 0 for c in each)] for each in taken]


def urgent(factory: Factory, count: int) -> list[int]:
    ids = factory.rows(count)
    factory.sql("UPDATE pillarbox.queue SET priority = 9 WHERE id = ANY (%(ids)s)", ids=ids)
    return ids


async def test_endless_urgent_mail_leaves_a_share_to_ordinary_mail(factory: Factory) -> None:
    """A client may submit all its mail as urgent."""
    urgent(factory, 200)
    factory.rows(12)
    retried(factory, 12)
    assert await classes(factory, 40, 4) == [[32, 8], [32, 8], [32, 8], [40, 0]]
    assert await classes(factory, 20, 1, ordinary=0) == [[20, 0]]


async def test_new_mail_and_retries_divide_the_ordinary_share(factory: Factory) -> None:
    urgent(factory, 40)
    factory.rows(20)
    retried(factory, 20)
    assert await take(factory, 40, 1) == [(36, 4)]  # 32 urgent, 4 fresh, 4 retried


async def test_places_that_ordinary_mail_leaves_are_filled(factory: Factory) -> None:
    urgent(factory, 100)
    factory.rows(3)
    assert await classes(factory, 40, 3) == [[37, 3], [40, 0], [23, 0]]
    urgent(factory, 3)
    factory.rows(60)
    assert await classes(factory, 40, 2) == [[3, 37], [0, 23]]


async def test_single_row_claims_leave_the_ordinary_share(factory: Factory) -> None:
    urgent(factory, 100)
    factory.rows(100)
    taken = await classes(factory, 1, 60)
    assert [1, 0] in taken
    assert [0, 1] in taken


async def test_new_mail_and_retries_alternate_in_a_single_place(factory: Factory) -> None:
    """A part of a place is a chance of it: rounded, it would go to the same class as long as urgent mail comes."""
    urgent(factory, 400)
    factory.rows(100)
    retried(factory, 100)
    taken = await take(factory, 4, 60, batch=4, ordinary=0.25)
    assert {fresh for fresh, _ in taken} == {3, 4}
    taken = await take(factory, 10, 60, batch=10, ordinary=0.1, retried=0.2)
    assert {again for _, again in taken} >= {0, 1}


async def test_a_claim_says_whether_newer_mail_may_be_due(factory: Factory) -> None:
    """Of mail that came back after it was parked none is newer; it may fill any number of claims."""
    retried(factory, 100)
    newest = factory.rows(40)[-1]
    connection = await database.connect(factory.uri, "claimer")
    try:
        claimer = Claimer("true", "w", Claim.model_validate({"batch": 40}))
        assert len(await claimer.take(connection, 40)) == 40
        assert claimer.newest == newest
        assert len(await claimer.take(connection, 50)) == 50
        assert claimer.newest == 0, "the last of what is new"
        assert len(await claimer.take(connection, 40)) == 40
        assert claimer.newest == 0
        newest = factory.rows(31)[-1]
        factory.sql("UPDATE pillarbox.queue SET priority = -1 WHERE retry_count = 0")
        assert len(await claimer.take(connection, 40)) == 40
        assert claimer.newest == newest
        assert len(await claimer.take(connection, 40)) == 1
        assert claimer.newest == 0
    finally:
        await connection.close()
