"""test_holds — held mail keeps the reason of its hold, and mail without a body is held

Owns: proofs about the trigger queue_released and the function hold_missing_body.
See: sql/schema/03_queue.sql and 09_result.sql; docs/reference/results.md, "On hold".
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from queued.claiming.bodies import Bodies
from shared.postgres import database as db
from tests.fixtures.database.results import WORKER, claim

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

POISON = """UPDATE pillarbox.queue SET metadata = coalesce(metadata, '{}') || '{"_quarantineid": "poison", "a": 1}'"""


@pytest.mark.parametrize(
    "release",
    [
        "UPDATE pillarbox.mail SET state = 'DELIVER'",
        "UPDATE pillarbox.queue SET status = 'DELIVER'",
        "UPDATE pillarbox.queue SET status = 'DELIVER', metadata = metadata || '{\"_quarantineid\": \"again\"}'",
    ],
    ids=["view", "root", "with a reason"],
)
def test_a_release_removes_the_reason_only(factory: Factory, release: str) -> None:
    message = factory.message()
    ids = factory.rows(2, message=message, partid="4", status="HOLD")
    factory.sql(POISON)
    factory.sql(release)
    assert [(row.id, row.leaf, row.metadata) for row in factory.queue()] == [
        (id_, "queue_def_456", {"_partid": "4", "a": 1}) for id_ in ids
    ]
    body = factory.bodies()[message]
    assert (body.refcount, body.counted) == (2, 2)
    factory.sql("DELETE FROM pillarbox.mail")
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 100)")
    assert {row.result for row in factory.archive()} == {"deleted"}, "released poison is ordinary mail"


def test_a_reviewer_releases_without_a_right_on_metadata(factory: Factory, logins: Logins) -> None:
    factory.row(status="HOLD")
    factory.sql(POISON)
    with logins.session("reviewer") as session:
        session.execute("UPDATE mail SET state = 'DELIVER'")
    [row] = factory.queue()
    assert (row.status, row.metadata) == ("DELIVER", {"_partid": "1", "a": 1})


def test_mail_that_stays_held_or_ends_keeps_the_reason(factory: Factory) -> None:
    held, ended = factory.rows(2, status="HOLD")
    factory.sql(POISON)
    factory.sql("UPDATE pillarbox.queue SET priority = 1 WHERE id = %(id)s", id=held)
    factory.move([ended], "BOUNCE")
    assert [row.metadata["_quarantineid"] for row in factory.queue(held, ended)] == ["poison", "poison"]
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 100)")
    assert [row.result for row in factory.archive()] == ["lock_expired"]


async def test_claimed_mail_without_a_body_is_held_with_the_reason(factory: Factory, logins: Logins) -> None:
    """With a worker's own rights, and once."""
    whole = factory.row()
    gone = factory.message()
    factory.rows(2, message=gone, partid="4")
    factory.sql("DELETE FROM pillarbox.messages WHERE id = %(id)s", id=gone)
    taken = await claim(factory.uri)
    warned: list[str] = []
    pool = await db.open_pool(logins.uri("queued"), "bodies", 1)
    try:
        async with pool.connection() as connection:
            connection.add_notice_handler(lambda notice: warned.append(f"{notice.severity} {notice.message_primary}"))
        bodies = Bodies(pool, 1000)
        lost = {c.id for c in taken if c.message_id == gone}
        assert {id_ for id_, _ in await bodies.hold_missing(taken)} == lost
        assert await bodies.hold_missing(taken) == set()
    finally:
        await pool.close()
    for row in factory.queue(*lost):
        assert (row.status, row.leaf, row.token, row.worker, row.lost_count) == ("HOLD", "queue_hold", None, None, 0)
        assert {**row.metadata, "_heldat": "then"} == {"_partid": "4", "_quarantineid": "body", "_heldat": "then"}
        assert row.last_error == "held: the message has no body"
    [kept] = factory.queue(whole)
    assert (kept.status, kept.worker) == ("DELIVER", WORKER)
    tried = [(row.queue__id, row.token, row.worker, row.outcome, row.scope) for row in factory.attempts()]
    assert tried == [(id_, taken[0].token, WORKER, "deferred", "us") for id_ in sorted(lost)]
    [said] = warned
    assert said.startswith("WARNING pillarbox: 2 held, their body is missing: ")
    assert f"{min(lost)} r1@example.com" in said


async def test_rows_of_another_claim_or_on_hold_are_unchanged(factory: Factory) -> None:
    mine, theirs, held = factory.rows(3)
    taken = await claim(factory.uri)
    factory.sql("DELETE FROM pillarbox.messages")
    factory.lease([theirs], ends=timedelta(hours=1))
    factory.move([held], "HOLD")
    pool = await db.open_pool(factory.uri, "bodies", 1)
    try:
        assert await Bodies(pool, 1000).hold_missing(taken) == {(mine, taken[0].token)}
    finally:
        await pool.close()
    assert [row.metadata.get("_quarantineid") for row in factory.queue(theirs, held)] == [None, None]


def test_reviewers_and_submitters_cannot_hold(factory: Factory, logins: Logins) -> None:
    for role in ("smtpd", "reviewer", "application", "maintainer"):
        with logins.session(role) as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
            session.execute("SELECT pillarbox.hold_missing_body(now(), '{}', '{}', '{}', '{}')")
