"""test_mail_view — the view `mail` is a simple interface to the whole queue, and `own_mail` to an application's

Owns: proofs about both views of sql/schema/08_mail.sql: hold, release, delete, bounce, reprioritise, reschedule, and
    what they refuse; and changes to a recipient during an attempt.
See: sql/README.md, "Claims"; tests/integration/schema/test_roles_refused.py for the roles that may use them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fixtures.database.listening import LISTEN
from tests.fixtures.database.results import DELIVERED, claim, deferred, finished, running_recorder
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

HOUR = timedelta(hours=1)


def change(factory: Factory, statement: str, **values: Any) -> int:
    """Run a statement on the view; how many rows it counts."""
    with psycopg.connect(factory.uri, autocommit=True) as connection:
        return connection.execute(statement.encode(), values or None).rowcount


def finish(factory: Factory) -> dict[str, int]:
    """A round of maintenance for deleted and bounced mail."""
    rows = factory.sql("SELECT * FROM pillarbox.maintain_finish(now(), 'maintainer', 100)")
    return {row.result: row.recipients for row in rows}


def test_the_view_has_one_row_per_recipient(factory: Factory) -> None:
    held = factory.row(status="HOLD", partid="2")
    factory.sql('UPDATE pillarbox.queue SET metadata = metadata || \'{"_quarantineid": "q"}\'')
    waiting = factory.row(due=HOUR, partid=None)
    factory.sql("UPDATE pillarbox.queue SET senderlocalpart = NULL, senderdomain = NULL WHERE id = %(id)s", id=waiting)
    first, second = factory.sql("SELECT * FROM pillarbox.mail ORDER BY id")
    assert (first.id, first.state, first.quarantine, first.partition) == (held, "HOLD", "q", "2")
    assert (first.sender, first.recipient) == ("sender@sender.example", "r1@example.com")
    assert (second.id, second.state, second.sender, second.partition) == (waiting, "SCHEDULED", "", None)


@pytest.mark.parametrize(
    ("before", "state"), [("DELIVER", "HOLD"), ("HOLD", "DELIVER"), ("HOLD", "DELETE"), ("DELIVER", "BOUNCE")]
)
def test_setting_the_state_moves_the_row(factory: Factory, before: str, state: str) -> None:
    moved, other = factory.row(status=before, partid="4"), factory.row(status=before, partid="1")
    assert change(factory, "UPDATE pillarbox.mail SET state = %(s)s WHERE partition = '4'", s=state) == 1
    assert [row.status for row in factory.queue(moved, other)] == [state, before]


def test_delete_requests_a_deletion_that_maintenance_executes(factory: Factory) -> None:
    factory.rows(3)
    gone = factory.row(status="HOLD")
    assert change(factory, "DELETE FROM pillarbox.mail WHERE state = 'HOLD'") == 1
    assert change(factory, "DELETE FROM pillarbox.mail WHERE id = %(id)s", id=gone) == 0  # asked for already
    assert finish(factory) == {"deleted": 1}
    assert len(factory.queue()) == 3


def test_priority_and_next_retry_can_be_changed(factory: Factory) -> None:
    id_ = factory.row(due=HOUR)
    assert change(factory, "UPDATE pillarbox.mail SET priority = 7, next_retry = '-infinity'") == 1
    [row] = factory.queue(id_)
    assert row.priority == 7
    assert abs(row.next_retry - datetime.now(UTC)) < timedelta(minutes=1)  # a past time means at once
    assert change(factory, "UPDATE pillarbox.mail SET next_retry = now() + interval '2 hours'") == 1
    assert factory.one("SELECT state FROM pillarbox.mail") == "SCHEDULED"


def test_making_mail_due_notifies_its_worker(factory: Factory) -> None:
    factory.row(due=HOUR, partid="5")
    factory.row(status="HOLD", partid="6")
    with psycopg.connect(factory.uri, autocommit=True) as listening:
        listening.execute(LISTEN)
        change(factory, "UPDATE pillarbox.mail SET next_retry = now() WHERE partition = '5'")
        change(factory, "UPDATE pillarbox.mail SET state = 'DELIVER' WHERE partition = '6'")
        heard = [n.payload for n in listening.notifies(timeout=PATIENCE, stop_after=2)]
    assert heard == ["5", "6"]


@pytest.mark.parametrize(
    ("before", "after"),
    [("DELETE", "DELIVER"), ("DELETE", "HOLD"), ("BOUNCE", "DELETE"), ("BOUNCE", "DELIVER"), ("DELETE", "BOUNCE")],
)
def test_illegal_moves_are_refused(factory: Factory, before: str, after: str) -> None:
    factory.row(status=before)
    with pytest.raises(psycopg.errors.CheckViolation, match=f"from {before} to {after}"):
        change(factory, "UPDATE pillarbox.mail SET state = %(s)s", s=after)
    if after == "DELETE":
        with pytest.raises(psycopg.errors.CheckViolation):
            change(factory, "DELETE FROM pillarbox.mail")
    assert [row.status for row in factory.queue()] == [before]


@pytest.mark.parametrize("state", ["'SENDING'", "'ACTIVE'", "'DEFER'", "'deliver'", "''", "NULL"])
def test_a_derived_state_cannot_be_set(factory: Factory, state: str) -> None:
    factory.row(status="HOLD")
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        change(factory, "UPDATE pillarbox.mail SET state = {}".replace("{}", state))


@pytest.mark.parametrize(
    "change_of",
    [
        *("id = id + 1", "message = gen_random_uuid()", "sender = ''", "recipient = 'x@y'", "received = now()"),
        *("size = 1", "retry_count = 9", "last_error = 'x'", "quarantine = 'q'", "partition = '9'", "transport = 'x'"),
    ],
)
def test_other_columns_cannot_be_changed(factory: Factory, change_of: str) -> None:
    factory.row()
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        change(factory, "UPDATE pillarbox.mail SET {}".replace("{}", change_of))


def test_bad_values_are_refused(factory: Factory) -> None:
    factory.row()
    for bad in ("priority = 10", "priority = NULL", "next_retry = 'infinity'"):
        with pytest.raises((psycopg.errors.IntegrityError, psycopg.errors.DataError)):
            change(factory, "UPDATE pillarbox.mail SET {}".replace("{}", bad))


async def test_mail_held_during_an_attempt_is_finished_or_stays_held(factory: Factory) -> None:
    factory.rows(2)
    first, second = await claim(factory.uri)
    assert change(factory, "UPDATE pillarbox.mail SET state = 'HOLD' WHERE state = 'SENDING'") == 2
    async with running_recorder(factory.uri) as recorder:
        recorder.add([finished(first, DELIVERED, "success"), deferred(second, datetime.now(UTC) + HOUR)])
        await recorder.drained()
    assert [(row.id, row.result) for row in factory.archive()] == [(first.id, "success")]
    [left] = factory.queue()
    assert (left.id, left.status, left.leaf, left.token) == (second.id, "HOLD", "queue_hold", None)
    assert await claim(factory.uri) == []


async def test_mail_deleted_during_an_attempt_waits_for_its_result(factory: Factory) -> None:
    factory.rows(3)
    sent, late, lost = await claim(factory.uri)
    assert change(factory, "DELETE FROM pillarbox.mail") == 3
    assert finish(factory) == {}
    async with running_recorder(factory.uri) as recorder:
        recorder.add([finished(sent, DELIVERED, "success"), deferred(late, datetime.now(UTC) + HOUR)])
        await recorder.drained()
    assert finish(factory) == {"deleted": 1}
    assert {row.id: row.result for row in factory.archive()} == {sent.id: "success", late.id: "deleted"}
    factory.sql("UPDATE pillarbox.queue SET lease_until = now() - interval '1 second'")
    assert await claim(factory.uri) == []  # it is not sent again
    assert finish(factory) == {"deleted": 1}
    assert factory.archive()[-1].id == lost.id


async def test_a_changed_priority_survives_the_running_attempt(factory: Factory) -> None:
    factory.row()
    [c] = await claim(factory.uri)
    due = datetime.now(UTC) + HOUR
    change(factory, "UPDATE pillarbox.mail SET priority = 3, next_retry = now() + interval '5 hours'")
    assert await claim(factory.uri) == []
    async with running_recorder(factory.uri) as recorder:
        recorder.add([deferred(c, due)])
        await recorder.drained()
    [row] = factory.queue()
    assert (row.priority, row.next_retry) == (3, due)


def test_an_application_sees_and_changes_its_own_mail_only(factory: Factory, logins: Logins) -> None:
    factory.row()
    enqueue = "SELECT pillarbox.enqueue('', ARRAY['r@example.com'], 'x', priority => %s)"
    with logins.session("application") as mine, logins.session("application") as theirs:
        mine.execute(enqueue, (1,))
        mine.execute(enqueue, (2,))
        theirs.execute(enqueue, (3,))
        assert [row.priority for row in mine.execute("SELECT * FROM own_mail ORDER BY id")] == [1, 2]
        assert mine.execute("UPDATE own_mail SET priority = -1, next_retry = now() + interval '1 day'").rowcount == 2
        assert mine.execute("DELETE FROM own_mail WHERE id = (SELECT min(id) FROM own_mail)").rowcount == 1
        assert theirs.execute("DELETE FROM own_mail WHERE id < (SELECT min(id) FROM own_mail)").rowcount == 0
        factory.sql("UPDATE pillarbox.queue SET status = 'HOLD' WHERE priority = 3")
        for refused in ("DELETE FROM own_mail", "UPDATE own_mail SET priority = 9"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="on hold"):
                theirs.execute(refused.encode())
    assert finish(factory) == {"deleted": 1}
    assert sorted((row.priority, row.status) for row in factory.queue()) == [
        (-1, "DELIVER"),
        (0, "DELIVER"),
        (3, "HOLD"),
    ]
