"""test_held — a hold by a rule, and the details of the session, are recorded once and fenced

Owns: proofs about result_hold_if_claimed.sql and the columns tls and source of attempts.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from queued.values import OnHold, Result, Spoken
from tests.fixtures.database.results import DEFERRED, DELIVERED, FAILED, claim, deferred, finished, running_recorder
from tests.fixtures.peers.scripted_peer import until

if TYPE_CHECKING:
    from queued.values import Claimed
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins
    from tests.fixtures.heard import Heard

SPOKEN = Spoken("TLSv1.3 TLS_AES_256_GCM_SHA384 verified", "192.0.2.1")


def held(c: Claimed, reason: str = "look at it") -> Result:
    """A try after which the recipient is held."""
    return Result(
        c, FAILED, "192.0.2.25:25", timedelta(seconds=1), None, None, spoken=SPOKEN, held=OnHold(reason, "review")
    )


async def test_a_held_recipient_waits_with_its_reason(factory: Factory, heard: Heard) -> None:
    message = factory.message()
    id_ = factory.row(message=message, partid="4", tries=2)
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        recorder.add([held(c)])
        await recorder.drained()
    [row] = factory.queue(id_)
    assert (row.status, row.last_error) == ("HOLD", "held: look at it")
    assert (row.metadata["_quarantineid"], row.metadata["_holdreason"]) == ("review", "look at it")
    assert (row.metadata["_partid"], row.retry_count) == ("4", 3)
    assert (row.token, row.worker, row.lease_until, row.lost_count) == (None, None, None, 0)
    [attempt] = factory.attempts()
    assert (attempt.outcome, attempt.queue__id, attempt.token, attempt.partid) == ("failed", c.id, c.token, "4")
    assert (attempt.tls, attempt.source) == SPOKEN[:2]
    assert factory.archive() == []
    assert factory.bodies()[message].refcount == 1
    [said] = heard.all("result.held")
    assert (said["quarantine"], said["reason"], said["to"]) == ("review", "look at it", c.recipient)
    factory.sql("UPDATE pillarbox.queue SET status = 'DELIVER'")
    [again] = await claim(factory.uri)
    assert again.retry_count == 4
    assert "_quarantineid" not in again.metadata


async def test_a_hold_after_a_lost_claim_changes_nothing(factory: Factory, heard: Heard) -> None:
    id_ = factory.row()
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        factory.sql("UPDATE pillarbox.queue SET token = token + 1")
        before = factory.queue(id_)
        recorder.add([held(c)])
        await recorder.drained()
    assert factory.queue(id_) == before
    [attempt] = factory.attempts()
    assert (attempt.token, attempt.tls) == (c.token, SPOKEN.tls)
    assert heard.all("claim.lost")[0]["recipient_id"] == c.id
    assert heard.all("result.held") == []


@pytest.mark.parametrize("status", ["HOLD", "DELETE", "BOUNCE"])
async def test_a_hold_by_a_rule_keeps_the_status_set_by_an_operator(factory: Factory, status: str) -> None:
    id_ = factory.row()
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        factory.sql("UPDATE pillarbox.queue SET status = %(status)s", status=status)
        recorder.add([held(c)])
        await recorder.drained()
    [row] = factory.queue(id_)
    assert (row.status, row.token, row.lease_until) == (status, None, None)
    assert "_quarantineid" not in (row.metadata or {})
    assert len(factory.attempts()) == 1


async def test_holds_and_other_results_of_one_group_are_recorded_once(factory: Factory) -> None:
    message = factory.message()
    factory.rows(message=message, count=6)
    due = datetime.now(UTC) + timedelta(hours=1)
    async with running_recorder(factory.uri) as recorder:
        one, two, three, four, five, six = await claim(factory.uri)
        recorder.add([held(one), finished(two, DELIVERED, "success"), deferred(three, due), held(four)])
        recorder.add([finished(five, FAILED, "failed"), held(six)])
        await recorder.drained()
    rows = {row.id: row.status for row in factory.queue()}
    assert rows == {one.id: "HOLD", three.id: "DELIVER", four.id: "HOLD", six.id: "HOLD"}
    assert len(factory.attempts()) == 6
    assert len(factory.archive()) == 2
    assert factory.bodies()[message].refcount == 4


async def test_tls_and_source_are_recorded_in_the_attempt(factory: Factory) -> None:
    factory.rows(count=2)
    async with running_recorder(factory.uri) as recorder:
        one, two = await claim(factory.uri)
        recorder.add(
            [
                finished(one, DELIVERED, "success")._replace(spoken=SPOKEN),
                deferred(two, datetime.now(UTC) + timedelta(hours=1), DEFERRED),
            ]
        )
        await recorder.drained()
    found = {attempt.queue__id: (attempt.tls, attempt.source) for attempt in factory.attempts()}
    assert found == {one.id: SPOKEN[:2], two.id: (None, None)}


async def test_a_worker_may_hold_and_notify_with_its_own_rights(factory: Factory, logins: Logins) -> None:
    message = factory.message()
    factory.rows(message=message, count=3)
    async with running_recorder(logins.uri("queued")) as recorder:
        one, two, three = await claim(logins.uri("queued"))
        late = deferred(three, datetime.now(UTC) + timedelta(hours=1))._replace(late=datetime.now(UTC))
        recorder.add([held(one), finished(two, FAILED, "failed"), late])
        await recorder.drained()
    assert [row.id for row in factory.queue() if row.status == "HOLD"] == [one.id]
    assert [n.kind for n in factory.sql("SELECT kind FROM pillarbox.notices ORDER BY kind")] == ["delayed", "failed"]
    assert len(factory.attempts()) == 3


async def test_a_refused_hold_keeps_the_earlier_results_of_its_group(factory: Factory, heard: Heard) -> None:
    """The others of its group are recorded by then, and are not recorded again."""
    factory.rows(count=2)
    takes = "timestamptz, bigint[], uuid[], bigint[], text[], text[], text[], timestamptz[]"
    away = f"ALTER FUNCTION pillarbox.{{}} ({takes}) RENAME TO {{}}"
    factory.sql(away.format("result_hold", "result_hold_away"))
    async with running_recorder(factory.uri) as recorder:
        one, two = await claim(factory.uri)
        recorder.add([held(one), finished(two, DELIVERED, "success")])
        await until(lambda: heard.all("result.unrecorded"))
        factory.sql(away.format("result_hold_away", "result_hold"))
        await recorder.drained()
    assert [(row.id, row.status) for row in factory.queue()] == [(one.id, "HOLD")]
    assert sorted(attempt.queue__id for attempt in factory.attempts()) == sorted([one.id, two.id])
    assert len(factory.archive()) == 1
