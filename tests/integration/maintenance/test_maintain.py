"""test_maintain — one worker finishes operators' requests, deletes orphaned bodies, and creates coming days

Owns: proofs about queued/maintain.py and the functions maintain_finish, maintain_sweep and history_create.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from queued import maintain
from queued.maintain import Maintainer
from shared.config.queued.settings import Maintenance
from shared.postgres import database as db
from tests.fixtures.database.listening import LISTEN
from tests.fixtures.database.maintaining import one_round
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from uuid import UUID

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

HOUR = timedelta(hours=1)


def released(factory: Factory, *messages: UUID, ago: timedelta = HOUR) -> None:
    """As if the last recipients of these had left some time ago, with any refcount."""
    factory.sql(
        "INSERT INTO pillarbox.released SELECT id, now() - %(ago)s FROM unnest(%(ids)s::uuid[]) AS id",
        ago=ago,
        ids=list(messages),
    )


@pytest.mark.parametrize(("status", "result"), [("DELETE", "deleted"), ("BOUNCE", "bounced")])
async def test_requested_deletions_and_bounces_are_finished_with_an_archive_row(
    factory: Factory, connection: db.Connection, heard: Heard, status: str, result: str
) -> None:
    message = factory.message()
    ids = factory.rows(2, message=message, partid="4", status=status, tries=3)
    held = factory.row(message=message, status="HOLD")
    factory.move([held], status)
    kept = factory.rows(2, message=message) + factory.rows(1, message=message, status="HOLD")
    assert await one_round(connection)
    assert sorted(row.id for row in factory.queue()) == sorted(kept)
    archived = factory.archive()
    assert [row.id for row in archived] == [*ids, held]
    assert {(row.result, row.worker, row.messages__id) for row in archived} == {(result, "worker", message)}
    assert [row.retry_count for row in archived] == [3, 3, 0]
    body = factory.bodies()[message]
    assert (body.refcount, body.counted) == (3, 3)
    assert heard.all("maintain.finished") == [{result: 3}]


async def test_a_leased_recipient_is_finished_after_its_lease(factory: Factory, connection: db.Connection) -> None:
    sending, gone = factory.row(), factory.row()
    factory.lease([sending], ends=HOUR)
    factory.lease([gone], ends=-HOUR)
    factory.move([sending, gone], "DELETE")
    await one_round(connection)
    assert [row.id for row in factory.queue()] == [sending]
    factory.sql("UPDATE pillarbox.queue SET lease_until = now() - interval '1 second'")
    await one_round(connection)
    assert factory.queue() == []
    assert [row.id for row in factory.archive()] == [sending, gone]


async def test_more_than_one_batch_is_finished_in_one_round(
    factory: Factory, connection: db.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "_ROUND", 60)  # a busy machine leaves some to the next round
    monkeypatch.setattr(maintain, "_STEP", 20)
    factory.rows(2500, status="DELETE")
    await one_round(connection)
    assert factory.queue() == []
    assert len(factory.archive()) == 2500


async def test_a_body_is_deleted_after_its_grace_period(factory: Factory, connection: db.Connection) -> None:
    old, fresh, never = factory.message(), factory.message(), factory.message()
    released(factory, old, ago=timedelta(minutes=11))
    released(factory, fresh, ago=timedelta(minutes=9))
    await one_round(connection, grace="10m")
    assert set(factory.bodies()) == {fresh, never}


async def test_the_last_recipient_starts_the_grace_period_and_a_new_one_ends_it(
    factory: Factory, connection: db.Connection
) -> None:
    message = factory.message()
    factory.rows(2, message=message)
    factory.sql("DELETE FROM pillarbox.queue")
    await one_round(connection, grace="1h")
    assert message in factory.bodies()
    factory.row(message=message)
    await one_round(connection, grace="1ms")
    body = factory.bodies()[message]
    assert (body.refcount, body.released) == (1, None)
    factory.sql("DELETE FROM pillarbox.queue")
    await one_round(connection, grace="1ms")
    assert factory.bodies() == {}


async def test_a_wrong_refcount_never_deletes_a_needed_body(factory: Factory, connection: db.Connection) -> None:
    """The counter proposes, the anti-join decides."""
    needed, held, unneeded = factory.message(), factory.message(), factory.message()
    factory.row(message=needed)
    factory.row(message=held, status="HOLD")
    factory.sql("DELETE FROM pillarbox.refcounts")
    factory.sql("INSERT INTO pillarbox.refcounts VALUES (%(id)s, 7)", id=unneeded)
    released(factory, needed, held, unneeded, ago=HOUR)
    await one_round(connection, grace="1m")
    assert set(factory.bodies()) == {needed, held}


async def test_one_round_deletes_several_batches_of_bodies(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    factory.sql(
        """WITH body AS (
               INSERT INTO pillarbox.messages (id, size, content)
               SELECT gen_random_uuid(), 0, '' FROM generate_series(1, 2500) RETURNING id
           )
           INSERT INTO pillarbox.released SELECT id, now() - interval '1 hour' FROM body"""
    )
    await one_round(connection, grace="1m")
    assert factory.bodies() == {}
    assert sum(swept["messages"] for swept in heard.all("maintain.swept")) == 2500


async def test_a_locked_body_is_skipped(factory: Factory, connection: db.Connection) -> None:
    busy, free = factory.message(), factory.message()
    released(factory, busy, free)
    with factory.another() as other:
        other.execute("SELECT FROM pillarbox.messages WHERE id = %s FOR UPDATE", (busy,))
        await one_round(connection, grace="1m")
        assert set(factory.bodies()) == {busy}
    await one_round(connection, grace="1m")
    assert factory.bodies() == {}


@pytest.mark.parametrize("priority", [5, 0, -5])
@pytest.mark.parametrize("error", [None, "451 Later"])
async def test_workers_of_overdue_mail_of_any_class_are_notified(
    factory: Factory, connection: db.Connection, heard: Heard, priority: int, error: str | None
) -> None:
    factory.row(partid="1", due=-HOUR)
    factory.row(partid=None, due=-HOUR)
    factory.row(partid="2")
    leased = factory.row(partid="3", due=-HOUR)
    factory.sql("UPDATE pillarbox.queue SET priority = %(p)s, last_error = %(e)s", p=priority, e=error)
    factory.lease([leased], ends=HOUR)
    factory._connection.execute(LISTEN)
    await one_round(connection, overdue="1m")
    payloads = sorted(n.payload for n in factory._connection.notifies(timeout=PATIENCE, stop_after=2))
    assert payloads == ["", "1"]
    assert heard.all("maintain.renotified") == [{"partitions": 2}]


async def test_the_backlog_of_one_leaf_does_not_prevent_notifications_of_others(
    factory: Factory, connection: db.Connection
) -> None:
    factory.rows(2000, partid="1", due=-2 * HOUR)
    factory.row(partid="4", due=-HOUR)
    factory._connection.execute(LISTEN)
    await one_round(connection, overdue="1m")
    assert sorted(n.payload for n in factory._connection.notifies(timeout=PATIENCE, stop_after=2)) == ["1", "4"]


async def test_partitions_of_coming_days_are_created_once(
    factory: Factory, connection: db.Connection, heard: Heard
) -> None:
    await one_round(connection, ahead=7)  # the fixture's migration made them, before a midnight perhaps
    before = len(heard.all("maintain.days"))
    await one_round(connection, ahead=9)
    assert heard.all("maintain.days")[before:] == [{"partitions": 4}]  # two more of each kind
    await one_round(connection, ahead=9)
    assert len(heard.all("maintain.days")) == before + 1
    far = factory.sql("SELECT (now() + interval '9 days')::timestamptz AS ts")[0].ts
    factory.sql(
        """INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, transportid,
                                           recipientdomain, size, outcome, scope, duration)
           VALUES (%(ts)s, 1, gen_random_uuid(), 1, 1, 'w', 'default', 'example.com', 1, 'delivered', 'us', '1 s')""",
        ts=far,
    )


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/St_Johns"])
def test_days_are_utc_in_any_session_time_zone(factory: Factory, zone: str) -> None:
    """Over a change of daylight-saving time too: a UTC day has 24 hours."""
    factory.sql("SELECT set_config('TimeZone', %(zone)s, false)", zone=zone)
    factory.sql("SELECT pillarbox.history_create('2031-03-08 23:30:00+00', 3)")
    factory.sql("SET TimeZone = 'UTC'")
    bounds = factory.sql(
        """SELECT c.relname AS name, pg_get_expr(c.relpartbound, c.oid) AS bound FROM pg_class c
            WHERE c.relname ~ '^attempts_2031[0-9]+$' ORDER BY 1"""
    )
    midnights = [f"'2031-03-{day:02} 00:00:00+00'" for day in range(7, 13)]
    assert [(row.name, row.bound) for row in bounds] == [
        (f"attempts_203103{7 + n:02}", f"FOR VALUES FROM ({midnights[n]}) TO ({midnights[n + 1]})") for n in range(5)
    ]


async def test_batches_do_not_shrink_because_commits_take_long(factory: Factory, connection: db.Connection) -> None:
    """Where a disk or a standby needs a quarter of a second, they came down to one row, and the queue grew."""
    factory.sql(
        """CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF current_setting('test.waited', true) = txid_current()::text THEN RETURN NULL; END IF;
               PERFORM pg_sleep(0.25), set_config('test.waited', txid_current()::text, true);
               RETURN NULL;
           END $$"""
    )
    factory.sql(
        """CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON pillarbox.archive DEFERRABLE INITIALLY DEFERRED
               FOR EACH ROW EXECUTE FUNCTION slow_commit()"""
    )
    factory.rows(1000, status="DELETE")
    maintainer, rounds = Maintainer("worker", Maintenance()), 0
    while factory.queue():
        await maintainer.round_if_elected(connection)
        rounds += 1
        assert rounds < 20


async def test_one_worker_maintains_at_a_time_until_its_lease_expires(
    factory: Factory, connection: db.Connection
) -> None:
    factory.row(status="DELETE")
    rival = await db.connect(factory.uri, "rival")
    assert (await db.fetch(rival, "maintain_elect", worker="rival", lease=timedelta(minutes=2)))[0][0] is True
    await rival.close()
    assert await one_round(connection) is False
    assert len(factory.queue()) == 1
    left = factory.one("SELECT until - clock_timestamp() FROM pillarbox.locks WHERE name = 'maintain'")
    assert timedelta(minutes=1) < left <= timedelta(minutes=2)
    factory.sql("UPDATE pillarbox.locks SET until = clock_timestamp() WHERE name = 'maintain'")
    assert await one_round(connection) is True
    assert factory.queue() == []
    assert factory.one("SELECT holder FROM pillarbox.locks WHERE name = 'maintain'") is None


async def test_a_lease_taken_before_a_clock_was_set_back_expires(factory: Factory, connection: db.Connection) -> None:
    factory.sql("UPDATE pillarbox.locks SET holder = 'gone', until = now() + interval '1 year' WHERE name = 'maintain'")
    assert await one_round(connection) is True


async def test_a_worker_that_lost_the_lease_stops_after_its_step(
    factory: Factory, connection: db.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    took: list[str] = []

    async def overtaken(*_: object) -> None:
        took.append("step")
        factory.sql(
            "UPDATE pillarbox.locks SET holder = 'rival', until = now() + interval '1m' WHERE name = 'maintain'"
        )

    steps = {"first": overtaken, "second": overtaken}
    monkeypatch.setattr(Maintainer, "_steps", lambda *_, **__: steps)
    assert await one_round(connection) is True
    assert took == ["step"]
    assert factory.one("SELECT holder FROM pillarbox.locks WHERE name = 'maintain'") == "rival"
