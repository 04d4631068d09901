"""test_keep_find — what was sent is found by its Message-ID after its body and its tries are gone

Owns: proofs that the statements that finish a recipient copy Message-ID and subject into the archive, and that the
    archive is kept for maintenance.keep.find without costing the sweep more.
See: sql/README.md, "Finding what was sent".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.fixtures.daemons.submissions import recipient, running_spool, submission
from tests.fixtures.database.maintaining import one_round
from tests.fixtures.database.results import DEFERRED, DELIVERED, FAILED, claim, deferred, finished, running_recorder

if TYPE_CHECKING:
    from shared.postgres import database as db
    from tests.fixtures.database.factory import Factory

FOUND = ("1@x.example", "Grüße")
DAY = timedelta(days=1)


async def queued(factory: Factory, recipients: int = 1) -> None:
    to = [recipient("1", f"r{n}") for n in range(recipients)]
    async with running_spool(factory.uri) as spool:
        await spool.submit(submission(*to, msgid=FOUND[0], subject=FOUND[1]))


async def test_every_end_of_a_recipient_is_found_by_its_message(factory: Factory, connection: db.Connection) -> None:
    await queued(factory, 5)
    factory.row()  # a message without either field
    taken = sorted(await claim(factory.uri), key=lambda c: c.id)
    async with running_recorder(factory.uri) as recorder:
        recorder.add([finished(taken[0], DELIVERED, "success"), finished(taken[1], FAILED, "failed")])
        recorder.add([deferred(c, datetime.now(UTC) + DAY, DEFERRED) for c in taken[2:5]])
        recorder.add([finished(taken[5], DELIVERED, "success")])
        await recorder.drained()
    factory.move([taken[2].id], "DELETE")
    factory.move([taken[3].id], "BOUNCE")
    assert await one_round(connection)
    archived = {row.id: (row.result, row.msgid, row.subject) for row in factory.archive()}
    assert archived == {
        taken[0].id: ("success", *FOUND),
        taken[1].id: ("failed", *FOUND),
        taken[2].id: ("deleted", *FOUND),
        taken[3].id: ("bounced", *FOUND),
        taken[5].id: ("success", None, None),
    }


async def test_a_success_recorded_without_an_attempt_is_found_too(factory: Factory) -> None:
    await queued(factory)
    factory.sql("ALTER TABLE pillarbox.attempts ADD CONSTRAINT none CHECK (outcome <> 'delivered')")
    async with running_recorder(factory.uri) as recorder:
        [c] = await claim(factory.uri)
        recorder.add([finished(c, DELIVERED, "success")])
        await recorder.drained()
    assert factory.attempts() == []
    assert [(row.msgid, row.subject) for row in factory.archive()] == [FOUND]


async def test_days_of_the_archive_stay_for_keep_find_and_those_of_attempts_do_not(
    factory: Factory, connection: db.Connection
) -> None:
    factory.sql("SELECT pillarbox.history_create(now() - interval '70 days', 0)")
    factory.sql("SELECT pillarbox.history_create(now() - interval '120 days', 0)")
    for _ in range(4):  # a call drops one day of each table
        assert await one_round(connection, keep={"history": "30d", "find": "90d"})
    assert ages(factory, "attempts") < 31
    assert 70 <= ages(factory, "archive") <= 72
    for _ in range(4):
        assert await one_round(connection, keep={"history": "80d", "find": "1d"})
    assert 70 <= ages(factory, "archive") <= 72  # the longer of the two counts
    for _ in range(4):
        assert await one_round(connection, keep={"history": "30d", "find": "1d"})
    assert ages(factory, "archive") < 31


def ages(factory: Factory, table: str) -> int:
    """How many days ago the oldest day of this table is."""
    found: int = factory.one(
        """SELECT (now() AT TIME ZONE 'UTC')::date - min(to_date(right(relname, 8), 'YYYYMMDD'))
             FROM pg_inherits JOIN pg_class ON oid = inhrelid
            WHERE inhparent = to_regclass('pillarbox.' || %(table)s)""",
        table=table,
    )
    return found


def test_a_kept_day_is_not_read_by_the_sweep(factory: Factory) -> None:
    factory.sql("SELECT pillarbox.history_create(now() - interval '60 days', 0)")
    message = factory.message()
    factory.sql("INSERT INTO pillarbox.released VALUES (%(id)s, now() - interval '1 hour')", id=message)
    factory.sql(
        """INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart,
                                          recipientdomain, size, transportid, priority, retry_count)
           VALUES (1, %(id)s, 1, now() - interval '60 days', 'failed', now(), 'r', 'd', 1, 'default', 0, 1)""",
        id=message,
    )
    with factory.another() as session:
        session.execute("SELECT pillarbox.maintain_sweep(now(), '10m', '7 days', 10)")
        read = session.execute(
            "SELECT sum(coalesce(idx_scan, 0) + coalesce(seq_scan, 0)) FROM pg_stat_xact_user_tables WHERE relname = "
            "'archive_' || to_char((now() - interval '60 days') AT TIME ZONE 'UTC', 'YYYYMMDD')"
        ).fetchone()
        assert read == (0,)
        session.commit()
    assert factory.bodies() == {}
