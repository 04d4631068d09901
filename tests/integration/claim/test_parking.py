"""test_parking — mail that cannot be started soon returns to the queue without counting a try, and is claimed again

Owns: proofs about claim_park_if_ours.sql, queued/in_flight.py and queued/attempts.py: dead and
    full destinations, policies, hosts without a free slot, attempts without progress, messages with a locked refcount.
See: tests/property/queued/test_destinations.py for the decisions;
    tests/scenario/pace/test_dead_and_slow_destinations_do_not_delay_mail.py.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from queued.claiming.claim import Claimer
from queued.claiming.leaves import among
from queued.deliver import Transport
from queued.pacing.pace import Paces
from queued.waiting.deferral import Deferral
from scripts.sink.server import Sink
from shared.config.queued.pacing import Pacing
from shared.config.queued.settings import Claim
from shared.postgres import database
from shared.postgres.queries import filled_query
from tests.fixtures.daemons.dispatching import dispatching
from tests.fixtures.database.results import WORKER
from tests.fixtures.heard import until
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.peers.scripted_peer import CONTENT, HANG, PLAIN, ScriptedPeer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queued.values import Claimed
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

LEASE = timedelta(minutes=15)
QUICK = {"retry": {"intervals": ["1h"]}}


async def claimed(factory: Factory, count: int) -> list[Claimed]:
    connection = await database.connect(factory.uri, "claimer")
    try:
        return await Claimer("true", WORKER, Claim()).take(connection, count)
    finally:
        await connection.close()


def park(
    factory: Factory, rows: Sequence[Claimed], seconds: float = 3600.0, reason: str = "20 connections"
) -> list[int]:
    """The ids that were parked."""
    values = {
        "now": None,
        "ids": [c.id for c in rows],
        "messages": [c.message_id for c in rows],
        "tokens": [c.token for c in rows],
        "seconds": [seconds] * len(rows),
        "reasons": [reason] * len(rows),
    }
    return [row.id for row in factory.sql(filled_query("claim_park_if_ours", among=among(None)), **values)]


def messages(factory: Factory, count: int, **columns: Any) -> list[int]:
    return [factory.row(message=factory.message(), **columns) for _ in range(count)]


async def test_a_parked_recipient_has_no_try_counted_and_is_due_later(factory: Factory) -> None:
    fresh, tried = factory.row(), factory.row(tries=3)
    factory.sql("UPDATE pillarbox.queue SET last_error = '451 4.7.1 Greylisted' WHERE id = %(id)s", id=tried)
    for reason in ("the first reason", "the second"):
        factory.sql("UPDATE pillarbox.queue SET next_retry = now()")
        assert sorted(park(factory, await claimed(factory, 2), reason=reason)) == [fresh, tried]
        rows = factory.queue(fresh, tried)
        assert [row.retry_count for row in rows] == [0, 3]
        assert [(row.token, row.worker, row.lease_until) for row in rows] == [(None, None, None)] * 2
        assert [row.last_error for row in rows] == [f"waiting: {reason}", "451 4.7.1 Greylisted"]
        now = factory.one("SELECT now()")
        assert all(timedelta(minutes=50) < row.next_retry - now <= timedelta(minutes=60) for row in rows)
    assert factory.attempts() == []


async def test_recipients_with_a_lost_claim_or_a_locked_row_are_not_parked(factory: Factory) -> None:
    lost, locked, free = factory.rows(3)
    taken = await claimed(factory, 3)
    factory.lease([lost], ends=timedelta(hours=1))
    with factory.another() as operator:
        operator.execute("SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE", [locked])
        assert park(factory, taken) == [free]
    assert park(factory, taken) == [locked]


async def test_a_dead_destination_is_remembered_and_probed_by_one_attempt(factory: Factory, heard: Heard) -> None:
    messages(factory, 50)
    async with dispatching(factory.uri, 1, LEASE, changes={**QUICK, "feedback": {"initial": 5, "dead": "1h"}}) as heart:
        await until(lambda: heart.inflight == 0 and heard.all("claim.parked"), "all to be tried or parked")
    rows = factory.queue()
    tried = [row for row in rows if row.retry_count]
    parked = [row for row in rows if not row.retry_count]
    assert len(tried) == len(factory.attempts()) <= 10  # a window of 5, and attempts begun as it closed
    assert len(tried) + len(parked) == 50
    dead = re.compile(r"waiting: (transport default|host 127\.0\.0\.1:1) does not answer: connect to")
    assert [row.last_error for row in parked if not dead.match(row.last_error)] == []
    hour = factory.one("SELECT now() + interval '59 minutes'")
    assert all(row.next_retry > hour for row in parked)


async def test_a_revived_destination_gets_its_mail(factory: Factory, heard: Heard) -> None:
    port = free_port()
    messages(factory, 30)
    dead = {"retry": {"intervals": ["1s"]}, "feedback": {"initial": 5, "dead": "100ms", "longest": "100ms"}}
    async with dispatching(factory.uri, port, LEASE, changes=dead):
        await heard.wait("claim.parked")
        async with Sink(port=port) as sink:
            await until(lambda: not factory.queue(), "everything to be delivered")
            assert len(sink.received) == 30


async def test_mail_past_its_age_limit_for_a_dead_destination_expires(factory: Factory) -> None:
    messages(factory, 20, received=datetime.now(UTC) - timedelta(days=6))
    dead = {**QUICK, "feedback": {"initial": 1, "dead": "1h"}}
    async with dispatching(factory.uri, 1, LEASE, changes=dead):
        await until(lambda: len(factory.archive()) == 20, "all to be given up")
    assert {row.result for row in factory.archive()} == {"expired"}


async def test_an_expired_recipient_does_not_block_others_of_its_message(factory: Factory) -> None:
    """Results without an attempt count as ready too: else the message would seem to be blocked by them."""
    message, long_ago = factory.message(), datetime.now(UTC) - timedelta(days=6)
    factory.rows(20, message=message, received=long_ago)
    dead = {**QUICK, "recipients": 1, "feedback": {"initial": 1, "dead": "1h"}}
    async with dispatching(factory.uri, 1, LEASE, changes=dead) as heart:
        messages = heart._in_flight.messages
        messages.begin(message, 1, monotonic())  # another of its recipients is being sent for long
        await until(lambda: len(factory.archive()) == 20, "all to be given up")
        await until(lambda: not heart.inflight, "all to be recorded")
        assert messages.begin(message, 1, monotonic() + 60) is None


async def test_a_sender_gets_one_delay_notice_for_a_dead_destination(factory: Factory, heard: Heard) -> None:
    messages(factory, 20, received=datetime.now(UTC) - timedelta(hours=5))
    dead = {"retry": {"intervals": ["1h"], "notice": "4h"}, "feedback": {"initial": 1, "dead": "1h"}}
    async with dispatching(factory.uri, 1, LEASE, changes=dead) as heart:
        await until(lambda: len(factory.attempts()) == 20 and not heart.inflight, "all to be notified of")
        factory.sql("UPDATE pillarbox.queue SET next_retry = now()")
        heart.start_over()
        await until(lambda: sum(parked["recipients"] for parked in heard.all("claim.parked")) == 20, "all to be parked")
    assert [row.kind for row in factory.sql("SELECT kind FROM pillarbox.notices")] == ["delayed"] * 20
    assert len(factory.attempts()) == 20


async def test_a_full_destination_leaves_slots_for_others(factory: Factory) -> None:
    """With `inflight` 400 one destination holds 100; the others' mail is claimed and sent."""
    async with ScriptedPeer(HANG) as hanging, Sink() as sink:
        messages(factory, 450, domain="slow.example")
        messages(factory, 20, domain="good.example")
        changes = {"routes": {"slow.example": f"127.0.0.1:{hanging.port}"}, "feedback": {"initial": 5}}
        claim = {"wait": "1h", "maxbytes": "64MiB"}
        async with dispatching(factory.uri, sink.port, LEASE, inflight=400, changes=changes, claim=claim) as heart:
            await until(lambda: len(sink.received) == 20, "the others' mail to be delivered")
            await until(lambda: heart.inflight == 100, "the slow one's to be parked")
            assert hanging.connections == 5
    assert {row.last_error for row in factory.queue()} == {
        None,
        f"waiting: 5 attempts under way to 127.0.0.1:{hanging.port}",
    }


async def test_mail_that_waits_for_a_policy_is_parked(factory: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Paces, "ask", lambda self, fields: Deferral(60.0, f"policy slowly for {fields.destination}", 10.0)
    )
    messages(factory, 3)
    async with Sink() as sink, dispatching(factory.uri, sink.port, LEASE):
        await until(lambda: all(row.last_error for row in factory.queue()), "all to be parked")
        assert sink.received == []
    rows = sorted(factory.queue(), key=lambda row: row.next_retry)
    assert {row.last_error for row in rows} == {"waiting: policy slowly for example.com"}
    assert rows[0].next_retry <= factory.one("SELECT now() + interval '60 seconds'")
    assert [(row.next_retry - rows[0].next_retry).total_seconds() for row in rows] == pytest.approx([0, 10, 20], abs=5)
    assert {row.retry_count for row in rows} == {0}


async def test_waiting_for_a_host_counts_no_try(factory: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    async def attempt(self: Transport, *_: object, **__: object) -> Deferral:
        return Deferral(60.0, "one connection a minute to mx.example.com")

    monkeypatch.setattr(Transport, "attempt", attempt)
    [id_] = messages(factory, 1)
    async with Sink() as sink, dispatching(factory.uri, sink.port, LEASE):
        await until(lambda: factory.queue()[0].last_error, "it to be parked")
    [row] = factory.queue(id_)
    assert (row.retry_count, row.last_error) == (0, "waiting: one connection a minute to mx.example.com")


@pytest.mark.parametrize(
    ("script", "phase", "uncertain"),
    [
        ((HANG,), "greeting", False),
        ((*PLAIN, "MAIL", b"250 Ok\r\n", "RCPT", b"250 Ok\r\n", "DATA", b"354 Go\r\n", CONTENT, HANG), "dot", True),
    ],
    ids=["greeting", "dot"],
)
async def test_a_stalled_attempt_is_cut_off(
    factory: Factory,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
    script: tuple[bytes | str, ...],
    phase: str,
    *,
    uncertain: bool,
) -> None:
    """As if a time limit had been forgotten: the peer's own are far longer."""
    monkeypatch.setattr("queued.attempts.stuck_after", lambda _: (2.0, 60.0))
    [id_] = messages(factory, 1)
    async with ScriptedPeer(*script) as peer, dispatching(factory.uri, peer.port, LEASE, changes=QUICK) as heart:
        [stuck] = await heard.wait("attempt.stuck")
        await until(lambda: heart.inflight == 0, "it to be recorded")
    assert (stuck["phase"], stuck["recipients"]) == (phase, 1)
    [attempt], [row] = factory.attempts(), factory.queue(id_)
    assert (attempt.outcome, attempt.scope, attempt.uncertain) == ("deferred", "destination", uncertain)
    assert row.last_error == f"no progress for 2 seconds while waiting for {phase}"
    assert row.retry_count == 1


async def test_a_locked_refcount_does_not_block_other_messages(factory: Factory, heard: Heard) -> None:
    """An operator's forgotten transaction, and more recipients of that message than the worker has room for."""
    message = factory.message()
    factory.rows(60, message=message)
    with factory.another() as operator:
        operator.execute("SELECT FROM pillarbox.refcounts WHERE messages__id = %s FOR UPDATE", [message])
        changes = {"recipients": 1, "retry": {"intervals": ["1h"]}}
        async with Sink() as sink, dispatching(factory.uri, sink.port, LEASE, inflight=20, changes=changes):
            await heard.wait("result.unrecorded")
            others = messages(factory, 40, domain="other.example")
            await until(lambda: not factory.queue(*others), "the others' results to be recorded")
            assert {row.recipientdomain for row in factory.archive()} == {"other.example"}
            operator.rollback()
            blocked = "waiting: results of this message cannot be recorded"
            assert blocked in {row.last_error for row in factory.queue()}
            await until(lambda: not any(row.token for row in factory.queue()), "the stopped attempts to be recorded")
            factory.sql("UPDATE pillarbox.queue SET next_retry = now() WHERE token IS NULL")
            await until(lambda: len(factory.archive()) == 60 + 40, "the message to be delivered to the rest")
    assert len(sink.received) == 60 + 40


@pytest.mark.parametrize("limit", [{"rate": "2/sec", "burst": 1}, {"concurrency": 1}], ids=["rate", "concurrency"])
async def test_recipients_that_wait_for_a_policy_take_no_slots(
    factory: Factory, monkeypatch: pytest.MonkeyPatch, limit: dict[str, Any]
) -> None:
    """Mail for 300 domains, and a limit on all of them that makes each wait for less than a second."""
    monkeypatch.setattr(Transport, "way", lambda _, domain: f"mx {domain}")  # as where each has a host of its own
    for number in range(300):
        messages(factory, 1, domain=f"d{number}.paced.example")
    policy = {"id": "together", "fields": [], "match": {"destination": [".paced.example"]}, **limit}
    paces = Paces(Pacing.model_validate({"policies": [policy]}))
    async with Sink() as sink, dispatching(factory.uri, sink.port, LEASE, inflight=100, paces=paces):
        await until(lambda: sink.received, "the first to be delivered")
        others = messages(factory, 20, domain="free.example")
        await until(lambda: not factory.queue(*others), "unlimited mail to be delivered")
        assert len(factory.queue()) > 100  # most of the others wait still


async def test_each_key_of_a_policy_has_its_own_queue(factory: Factory) -> None:
    """200 domains with two each, one of which goes at once: the others wait for an hour each, not for 200."""
    for number in range(200):
        messages(factory, 2, domain=f"d{number}.example")
    policy = {"id": "gentle", "fields": ["destination"], "rate": "1/hour"}
    paces = Paces(Pacing.model_validate({"policies": [policy]}))
    waiting = {"waiting: policy gentle: 1/hour"}  # some wait for the destination first, until the policy has seen them
    async with Sink() as sink, dispatching(factory.uri, sink.port, LEASE, inflight=500, paces=paces):
        await until(lambda: len(sink.received) == 200, "the first of each to be delivered")
        await until(lambda: {row.last_error for row in factory.queue()} == waiting, "the others to be parked")
    rows = factory.queue()
    latest = factory.one("SELECT now() + interval '1 hour'")
    assert len(rows) == 200
    assert all(row.next_retry <= latest for row in rows)


async def test_recipients_that_wait_for_a_connection_interval_are_parked(factory: Factory, heard: Heard) -> None:
    """An interval of less than the longest that is waited for, and more mail than gets a connection in that time."""
    for number in range(30):
        messages(factory, 1, domain=f"d{number}.example")
    policy = {"id": "slowly", "fields": [], "connectinterval": "3s"}
    paces = Paces(Pacing.model_validate({"policies": [policy]}))
    never = {"pooling": {"transactions": 1}}
    async with Sink() as sink, dispatching(factory.uri, sink.port, LEASE, changes=never, paces=paces):
        await until(lambda: sum(parked["recipients"] for parked in heard.all("claim.parked")) > 20, "most to be parked")
    assert {row.retry_count for row in factory.queue()} == {0}
    assert len({row.next_retry for row in factory.queue()}) > 10  # one after another
