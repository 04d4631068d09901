"""test_claim — a worker claims only due rows of its share, earliest first

Owns: proofs about queued/claiming/claim.py and claim.sql, one worker at a time; test_concurrent_claims.py has several
    at once, test_plan.py how PostgreSQL runs it.
"""

from __future__ import annotations

from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from queued.claiming.claim import Claimer
from shared.config.queued.settings import Claim
from shared.mail.message import Address
from shared.postgres import database as db

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

HOUR = timedelta(hours=1)


def claimer(where: str = "true", **settings: Any) -> Claimer:
    return Claimer(where, "worker@host:1", Claim.model_validate({"lease": "15m", "poll": "1h", **settings}))


async def test_a_claim_takes_the_earliest_due_rows_up_to_its_limit(factory: Factory, connection: db.Connection) -> None:
    late, early, middle = (factory.row(due=timedelta(minutes=-m), partid=p) for m, p in ((1, "1"), (9, "4"), (5, None)))
    mine = claimer()
    assert [c.id for c in await mine.take(connection, 2)] == [early, middle]
    assert [c.id for c in await mine.take(connection, 2)] == [late]
    assert await mine.take(connection, 2) == []


async def test_a_claim_writes_lease_token_and_try_before_it_returns(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    message = factory.message()
    ids = factory.rows(3, message=message, tries=4)
    before = monotonic()
    taken = await claimer(lease="10m").take(connection, 10)
    assert [(c.id, c.actionid, c.retry_count, c.message_id) for c in taken] == [
        (id_, number, 5, message) for number, id_ in enumerate(ids, start=1)
    ]
    assert before + 600 <= taken[0].expires <= monotonic() + 600
    for row in factory.queue():
        assert (row.token, row.worker, row.retry_count, row.status) == (taken[0].token, "worker@host:1", 5, "DELIVER")
        assert row.lease_until - row.last_retry == timedelta(minutes=10)
    assert heard.all("claim.taken") == [{"recipients": 3, "token": taken[0].token}]
    assert factory.attempts() == []


async def test_a_claimed_recipient_has_its_envelope(factory: Factory, connection: db.Connection) -> None:
    factory.row(partid="6", domain="destination.example", transportid="relay")
    factory.sql("UPDATE pillarbox.queue SET jobid = 'campaign'")
    [c] = await claimer().take(connection, 1)
    assert (c.sender, c.recipient) == (Address("sender", "sender.example"), Address("r1", "destination.example"))
    assert (c.partid, c.transportid, c.jobid) == ("6", "relay", "campaign")
    [row] = factory.queue()
    assert (c.received, c.size) == (row.ts, row.size)


async def test_the_null_sender_is_claimed_as_none(factory: Factory, connection: db.Connection) -> None:
    factory.row()
    factory.sql("UPDATE pillarbox.queue SET senderlocalpart = NULL, senderdomain = NULL")
    [c] = await claimer().take(connection, 1)
    assert c.sender is None


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("true", ["1", "2", "4", "9", None]),
        ("metadata->>'_partid' IN ('1','2')", ["1", "2"]),
        ("metadata->>'_partid' IN ('4') OR metadata->>'_partid' IS NULL", ["4", None]),
        ("metadata->>'_partid' IS NULL", [None]),
        ("recipientdomain LIKE '%.example' AND metadata->>'_partid' <> '1'", ["2", "4", "9"]),
        ("false", []),
    ],
)
async def test_only_rows_of_the_workers_condition_are_claimed(
    factory: Factory, connection: db.Connection, where: str, expected: list[str | None]
) -> None:
    for partid in ("1", "2", "4", "9", None):
        factory.row(partid=partid, domain="some.example")
    taken = await claimer(where).take(connection, 10)
    assert [c.partid for c in taken] == expected
    assert sum(row.token is not None for row in factory.queue()) == len(expected)


@pytest.mark.parametrize("status", ["HOLD", "DELETE", "BOUNCE"])
async def test_only_rows_to_deliver_are_claimed(factory: Factory, connection: db.Connection, status: str) -> None:
    factory.row(status=status)
    assert await claimer().take(connection, 10) == []


async def test_rows_due_later_wait_and_until_due_gives_the_time(factory: Factory, connection: db.Connection) -> None:
    mine = claimer("metadata->>'_partid' = '1'", poll="7s")
    assert await mine.until_due(connection) == 7.0
    factory.row(due=HOUR)
    factory.row(due=2 * HOUR)
    factory.row(due=HOUR / 60, partid="2")
    assert await mine.take(connection, 10) == []
    assert 3000 < await mine.until_due(connection) <= 3600


async def test_an_expired_lease_makes_the_row_due_again(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    held, ended = factory.row(partid="1"), factory.row(partid="2")
    factory.lease([held], ends=timedelta(minutes=1))
    token = factory.lease([ended], ends=timedelta(seconds=-1), worker="dead@host:9")
    [c] = await claimer().take(connection, 10)
    assert (c.id, c.retry_count) == (ended, 2)
    assert c.token != token
    [attempt] = factory.attempts()
    assert (attempt.queue__id, attempt.token, attempt.worker) == (ended, token, "dead@host:9")
    assert (attempt.outcome, attempt.scope, attempt.uncertain, attempt.retry_count) == ("lease_expired", "us", True, 1)
    assert (attempt.partid, attempt.messages__id, attempt.recipientdomain) == ("2", c.message_id, "example.com")
    assert timedelta(seconds=59) < attempt.duration < timedelta(minutes=5)
    assert heard.all("claim.expired") == [{"recipient_id": ended, "token": token}]


async def test_a_released_row_is_unchanged_by_the_claim(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    factory.rows(3, tries=2)
    taken = await claimer().take(connection, 10)
    await claimer().give_back(connection, taken[:2])
    first, second, third = factory.queue()
    for row in (first, second):
        assert (row.token, row.worker, row.lease_until, row.retry_count) == (None, None, None, 2)
    assert (third.token, third.retry_count) == (taken[2].token, 3)
    again = await claimer().take(connection, 10)
    assert [(c.id, c.retry_count) for c in again] == [(first.id, 3), (second.id, 3)]
    assert factory.attempts() == []
    assert heard.all("claim.released") == [{"recipients": 2}]


async def test_releasing_a_lost_claim_changes_nothing(factory: Factory, connection: db.Connection) -> None:
    taken = [factory.row()]
    mine = await claimer(lease="1ms").take(connection, 10)
    factory.sql("UPDATE pillarbox.queue SET lease_until = now() - interval '1 second'")
    [theirs] = await claimer().take(connection, 10)
    await claimer().give_back(connection, mine)
    [row] = factory.queue(*taken)
    assert (row.token, row.retry_count) == (theirs.token, 2)


async def test_a_row_on_hold_is_not_claimed_until_it_is_released(factory: Factory, connection: db.Connection) -> None:
    ids = factory.rows(2)
    factory.move(ids[:1], "HOLD")
    assert [c.id for c in await claimer().take(connection, 10)] == ids[1:]
    factory.move(ids[:1], "DELIVER")
    assert [c.id for c in await claimer().take(connection, 10)] == ids[:1]


async def test_a_late_commit_below_the_floor_is_found_by_the_next_full_pass(
    factory: Factory, connection: db.Connection
) -> None:
    factory.row()
    mine = claimer(poll="1h")
    assert len(await mine.take(connection, 10)) == 1
    below, within = factory.row(due=timedelta(minutes=-5)), factory.row(due=timedelta(seconds=-5))
    assert [c.id for c in await mine.take(connection, 10)] == [within]
    assert await mine.take(connection, 10) == []
    mine._full.hurry()  # as if an hour had passed since
    assert [c.id for c in await mine.take(connection, 10)] == [below]


async def test_a_claim_is_planned_once_for_a_connection(connection: db.Connection) -> None:
    """A pool opens connections when mail comes suddenly; on each the first claims took longer to plan than to run."""
    await db.keep_plans(connection)
    await claimer().take(connection, 1, besides=[1])
    assert await plans(connection) == [], "a text that does not come again is kept"
    mine = claimer()
    for _ in range(2):
        await mine.take(connection, 1)
    assert await plans(connection) == [(3, 0)], "the suspects of a full pass, and two claims"


async def plans(connection: db.Connection) -> list[tuple[int, int]]:
    """How often each kept claim ran by the plan that was kept, and by one of its own."""
    cursor = await connection.execute(
        "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE '%lost_since%'"
    )
    return [(generic, custom) for generic, custom in await cursor.fetchall()]
