"""test-events — what happens to a recipient becomes events, in order, once each, signed

Owns: proofs about queued/webhooks, sql/schema/22_webhook.sql and the queries webhook_*.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks.webhooks import Webhook

from tests.fixtures.database.results import DEFERRED, DELIVERED, FAILED, claim, deferred, finished, running_recorder
from tests.fixtures.queue.hooked import SECRET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shared.mail.outcome import Outcome
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.peers.web.hooks import Hooks
    from tests.fixtures.queue.hooked import Hook

    type Make = Callable[[], Awaitable[Hooks]]

MINUTE = timedelta(minutes=1)


async def result(uri: str, outcome: Outcome, ended: str | None = None, limit: int = 10) -> None:
    """Claim what is due and record this for each."""
    claimed = await claim(uri, limit)
    later = datetime.now(UTC) - timedelta(seconds=1)
    async with running_recorder(uri) as recorder:
        recorder.add([finished(each, outcome, ended) if ended else deferred(each, later) for each in claimed])
        await recorder.drained()


def kinds(hooks: Hooks) -> list[str]:
    return [event["type"] for event in hooks.taken]


async def test_an_endpoint_gets_the_life_of_a_recipient_in_order(
    factory: Factory, database: str, hooked: Hook, hooks: Make
) -> None:
    taker = await hooks()
    hook = hooked(taker.url)
    row = factory.row(status="HOLD")
    factory.move([row], "DELIVER")
    await result(database, DEFERRED)
    await result(database, DELIVERED, "success")
    await hook.settled()
    assert kinds(taker) == ["accepted", "held", "released", "deferred", "delivered"]
    for event in taker.taken:
        data = event["data"]
        assert (data["id"], data["recipient"], data["sender"]) == (row, "r1@example.com", "sender@sender.example")
        assert event["id"].startswith(f"evt_{data['message'].replace('-', '')}_{row}_{event['type']}")
    end = taker.taken[-1]
    assert end["data"]["reply"] == {"code": 250, "enhanced": "2.0.0", "text": "250 2.0.0 Ok"}
    assert (end["data"]["result"], end["data"]["tries"], end["data"]["host"]) == ("success", 2, "192.0.2.25:25")
    await hook.settled()
    assert len(taker.requests) == 5


@pytest.mark.parametrize("waits", [False, True])
async def test_only_events_of_queued_recipients_lock_leaves(factory: Factory, database: str, *, waits: bool) -> None:
    """With 500 leaves each look would else take 5,600 locks, of the 12,800 for all sessions."""
    for _ in range(3):
        factory.row()
    await result(database, DEFERRED, None if waits else "failed")
    with factory.another() as session:
        asked = """SELECT * FROM pillarbox.webhook_events('{deferred,failed}', NULL, NULL, now() - interval '1 hour',
                                                          now() + interval '1 hour', NULL, NULL, NULL, NULL, 9)"""
        assert len(session.execute(asked).fetchall()) == 3
        locked = session.execute(
            """SELECT DISTINCT c.relname FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                WHERE l.pid = pg_backend_pid() AND c.relname ~ '^queue_def_'"""
        ).fetchall()
    assert bool(locked) == waits


async def test_each_end_of_a_recipient_has_its_event(
    factory: Factory, database: str, hooked: Hook, hooks: Make
) -> None:
    taker = await hooks()
    hook = hooked(taker.url, events=["failed", "expired", "bounced", "deleted"])
    for ended in ("failed", "expired"):
        factory.row()
        await result(database, FAILED, ended)
    for status in ("BOUNCE", "DELETE"):
        factory.move([factory.row()], status)
        factory.sql("SELECT pillarbox.maintain_finish(now(), 'test', 10)")
    await hook.settled()
    assert sorted(kinds(taker)) == [
        "bounced",
        "deleted",
        "expired",
        "failed",
    ]  # of four recipients, sent beside each other


async def test_a_request_is_signed_as_the_specification_says(
    factory: Factory, hooked: Hook, hooks: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker = await hooks()
    old = "whsec_" + "b2xkLXNlY3JldC1vZi0yNC1vY3RldHMtb3ItbW9yZQ=="
    monkeypatch.setenv("OLD_SECRET", old)
    hook = hooked(taker.url, secrets=[SECRET, "env:OLD_SECRET"])
    factory.rows(2)
    await hook.settled()
    assert len(taker.requests) == 2
    for request in taker.requests:
        for secret in (SECRET, old):
            read: Any = Webhook(secret).verify(request.body, request.headers)
            assert read["type"] == "accepted"
            assert request.headers["webhook-id"] == read["id"]
        with pytest.raises(Exception, match="No matching signature"):
            Webhook(SECRET).verify(request.body.replace(b"accepted", b"rejected"), request.headers)


async def test_a_batch_has_many_events_in_one_signed_request(factory: Factory, hooked: Hook, hooks: Make) -> None:
    taker = await hooks()
    hook = hooked(taker.url, batch=50)
    ids = factory.rows(120)
    await hook.settled()
    assert [len(request.events) for request in taker.requests] == [50, 50, 20]
    assert [event["data"]["id"] for event in taker.taken] == ids
    Webhook(SECRET).verify(taker.requests[0].body, taker.requests[0].headers)


async def test_a_condition_selects_the_recipients(factory: Factory, hooked: Hook, hooks: Make) -> None:
    taker = await hooks()
    condition = 'recipientdomain=*.example sender="sender@sender.example" not recipient=r2@*'
    hook = hooked(taker.url, condition=condition)
    factory.rows(3, domain="ash.example")
    factory.row(domain="ash.test")
    await hook.settled()
    assert sorted(event["data"]["recipient"] for event in taker.taken) == ["r1@ash.example", "r3@ash.example"]


async def test_a_transaction_that_commits_late_is_not_skipped_and_keeps_nobody_waiting(
    factory: Factory, hooked: Hook, hooks: Make
) -> None:
    taker = await hooks()
    hook = hooked(taker.url, events=["held"])
    late, other = factory.rows(2)
    with factory.another() as session:
        session.execute("UPDATE pillarbox.queue SET status = 'HOLD' WHERE id = %s", [late])
        factory.move([other], "HOLD")
        await hook.settled()
        assert [event["data"]["id"] for event in taker.taken] == [other]
        for _ in range(3):  # further transactions, and positions noted behind it
            factory.row(status="HOLD")
            await hook.after(MINUTE)
        session.commit()
    factory.row(status="HOLD")
    await hook.after(MINUTE)
    seen = [event["data"]["id"] for event in taker.taken]
    assert late in seen
    assert len(seen) == len(set(seen)) == 6


async def test_a_long_history_is_read_in_portions_beside_an_open_transaction(
    factory: Factory, hooked: Hook, hooks: Make
) -> None:
    taker = await hooks()
    hook = hooked(taker.url, events=["held"], batch=100)
    late = factory.row()
    with factory.another() as session:
        session.execute("UPDATE pillarbox.queue SET status = 'HOLD' WHERE id = %s", [late])
        for _ in range(100):  # more transactions than the first portion has
            factory.row(status="HOLD")
        factory.rows(900, status="HOLD")  # more events of one transaction than a portion has
        await hook.settled()
        assert len(taker.taken) == 1000
        session.commit()
    await hook.settled()
    seen = [event["data"]["id"] for event in taker.taken]
    assert seen[-1] == late
    assert len(seen) == len(set(seen)) == 1001


async def test_after_a_dump_was_restored_nothing_is_skipped(factory: Factory, hooked: Hook, hooks: Make) -> None:
    taker = await hooks()
    hook = hooked(taker.url, events=["held", "released"])
    first = factory.row(status="HOLD")
    await hook.settled()
    second = factory.row(status="HOLD")
    # As pg_restore into another cluster leaves it: numbers of transactions that this server has never given.
    factory.sql("UPDATE pillarbox.milestones SET xact = xact + 1000000000")
    factory.sql(
        """UPDATE pillarbox.webhook_cursors SET xact = xact + 1000000000,
                  snapshot = (SELECT format('%s:%s:', far, far)::pg_snapshot
                                FROM (SELECT pg_snapshot_xmax(snapshot)::text::bigint + 1000000000 AS far) AS f)"""
    )
    third = factory.row(status="HOLD")
    await hook.begin_again()
    await hook.settled()
    seen = [(event["id"], event["data"]["id"]) for event in taker.taken]
    assert {recipient for _, recipient in seen} == {first, second, third}
    assert len(set(seen)) == 3  # what comes twice has the id that it had before
    fourth = factory.row(status="HOLD")
    await hook.after(MINUTE)
    assert taker.taken[-1]["data"]["id"] == fourth


async def test_after_the_clock_was_put_back_by_weeks_nothing_is_skipped(
    factory: Factory, hooked: Hook, hooks: Make
) -> None:
    taker = await hooks()
    hook = hooked(taker.url, events=["held"])
    first = factory.row(status="HOLD")
    await hook.settled()
    second = factory.row(status="HOLD")
    factory.sql("UPDATE pillarbox.milestones SET ts = ts + interval '30 days'")
    factory.sql(
        """UPDATE pillarbox.webhook_cursors
              SET at = at + interval '30 days', xact = pg_current_xact_id()::text::bigint"""
    )
    third = factory.row(status="HOLD")
    await hook.begin_again()
    await hook.settled()
    assert sorted(event["data"]["id"] for event in taker.taken) == [first, second, third]
    fourth = factory.row(status="HOLD")
    await hook.after(MINUTE)
    assert [event["data"]["id"] for event in taker.taken[3:]] == [fourth]


async def test_an_alarm_of_a_report_is_an_event_of_its_own_once(factory: Factory, hooked: Hook, hooks: Make) -> None:
    taker, other = await hooks(), await hooks()
    wanting = hooked(taker.url, events=["report.alarm"])
    picky = hooked(other.url, "picky", condition="senderdomain=sender.example")
    add = """INSERT INTO pillarbox.report_alarms (kind, subject, at, value, usual, score)
             VALUES ('source', '192.0.2.1', '2026-03-02T00:00Z', 0.5, 0.9, -8) ON CONFLICT DO NOTHING"""
    for _ in range(2):
        factory.sql(add)
        await wanting.settled()
        await picky.settled()
    [request] = taker.requests
    event = Webhook(SECRET).verify(request.body, dict(request.headers))
    assert event["type"] == "report.alarm"
    assert event["data"] == {
        "alarm": "source",
        "subject": "192.0.2.1",
        "at": "2026-03-02T00:00:00Z",
        "value": 0.5,
        "usual": 0.9,
        "score": -8,
    }
    assert other.requests == [], "an alarm is of no recipient, so it fits no condition"
