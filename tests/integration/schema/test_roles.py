"""test_roles — each role can do all of its work with its own rights

Owns: proofs about sql/schema/25_right.sql: real daemons as logins that have one role each, reviewers, analysts and
    maintainers at their work.
See: tests/integration/schema/test_roles_refused.py for refused statements.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from queued.pacing.pace import Fields, Paces, Turn
from queued.waiting.deferral import Deferral
from shared.config.queued.pacing import Pacing
from shared.postgres import database as db
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.database.logins import name_of

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

# Halon's queue manual, 3.3.1, with ->> where it has ->.
RETENTION = (
    "UPDATE queue SET status = 'DELETE' WHERE status = 'HOLD'"
    " AND metadata->>'_quarantineid' = 'mailquarantine:release1' AND ts < NOW() - '1 days'::INTERVAL;"
)


def database(uri: str) -> dict[str, Any]:
    """The section of a daemon's configuration with its login."""
    return {"environment": {"database": {"uri": uri}}}


async def test_both_daemons_work_with_their_own_rights(system: System, books: Books, logins: Logins) -> None:
    rule = {"id": "suspects", "if": {"recipientdomain": ["held.example"]}, "then": {"hold": "q"}}
    smtpd = await system.smtpd(policy={"rules": [rule]}, **database(logins.uri("smtpd")))
    # Slower to deliver than the lease lasts, so only heartbeats keep the claim.
    worker = await system.worker(
        books.sink.port,
        claim={"lease": "1s", "poll": "500ms"},
        maintenance={"keep": {"deadletters": "7d"}},
        **database(logins.uri("queued")),
    )
    # Work for maintenance: a day to make, keys to forget, a deletion to finish, bodies to sweep, days to drop.
    await system.rows(
        """DO $$ BEGIN EXECUTE format('DROP TABLE pillarbox.attempts_%%s',
             to_char((now() + interval '1 day') AT TIME ZONE 'UTC', 'YYYYMMDD')); END $$""".replace("%%", "%")
    )
    await system.rows(
        """CREATE TABLE attempts_20200101 PARTITION OF attempts
           FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')"""
    )
    await system.rows(
        "INSERT INTO idempotency (application, key, messages__id, ts)"
        " VALUES ('a', 'k', gen_random_uuid(), '2020-01-01')"
    )
    await books.submit(smtpd, numbered(20))
    await books.submit(smtpd, numbered(2, first=20, box="slow3"))
    await books.submit(smtpd, numbered(2, first=22, box="permerror"))
    await books.submit(smtpd, numbered(2, first=24, box="greylist"))
    await books.submit(smtpd, numbered(2, ["held.example"], first=26))
    await books.until_arrived(24)
    await system.until("SELECT count(*) = 2 FROM queue")

    with logins.session("reviewer") as reviewer:
        assert reviewer.execute("UPDATE queue SET status = 'DELETE' WHERE status = 'HOLD'").rowcount == 2
    await system.until_finished()
    await system.until("SELECT count(*) = 2 FROM messages")  # the bodies of the two dead letters are kept
    await system.until("SELECT count(*) = 0 FROM idempotency")
    await system.until("SELECT to_regclass('attempts_20200101') IS NULL")
    await system.until(
        "SELECT to_regclass('attempts_' || to_char(now() AT TIME ZONE 'UTC' + interval '1 day', 'YYYYMMDD'))"
        " IS NOT NULL"
    )
    results = dict(await system.rows("SELECT result, count(*) FROM archive GROUP BY 1"))
    assert results == {"success": 24, "failed": 2, "deleted": 2}
    assert books.account().duplicated == books.account().altered == 0
    for event in (
        "maintain.failed",
        "claim.failed",
        "claim.ended",
        "claim.expired",
        "result.unrecorded",
        "wakeup.lost",
    ):
        # A claim without an answer in time is of a busy machine, not of rights.
        assert [line for line in worker.said(event) if "no answer within" not in line.get("error", "")] == [], event
    assert await worker.stop() == 0
    assert await smtpd.stop() == 0


def test_a_reviewer_reads_releases_and_deletes_held_mail(factory: Factory, logins: Logins) -> None:
    released, deleted, bounced = (factory.row(status="HOLD", partid=p) for p in ("1", "4", None))
    with logins.session("reviewer") as reviewer:
        assert len(reviewer.execute("SELECT * FROM mail WHERE state = 'HOLD'").fetchall()) == 3
        assert len(reviewer.execute("SELECT content FROM messages").fetchall()) == 3
        assert reviewer.execute("UPDATE mail SET state = 'DELIVER' WHERE id = %s", (released,)).rowcount == 1
        assert reviewer.execute("DELETE FROM mail WHERE id = %s", (deleted,)).rowcount == 1
        assert reviewer.execute("UPDATE queue SET status = 'BOUNCE' WHERE id = %s", (bounced,)).rowcount == 1
    statuses = {row.id: row.status for row in factory.queue()}
    assert statuses == {released: "DELIVER", deleted: "DELETE", bounced: "BOUNCE"}


def test_the_manuals_retention_statement_runs_as_a_reviewer(factory: Factory, logins: Logins) -> None:
    old, young, other, due = (factory.row(status=s) for s in ("HOLD", "HOLD", "HOLD", "DELIVER"))
    quarantine = """UPDATE pillarbox.queue SET metadata = metadata || jsonb_build_object('_quarantineid', %(q)s::text),
                           ts = now() - %(age)s WHERE id = %(id)s"""
    for id_, name, days in ((old, "release1", 2), (young, "release1", 0), (other, "release2", 2), (due, "release1", 2)):
        factory.sql(quarantine, q=f"mailquarantine:{name}", age=timedelta(days=days), id=id_)
    with logins.session("reviewer") as reviewer:
        assert reviewer.execute(RETENTION.encode()).rowcount == 1
    statuses = {row.id: row.status for row in factory.queue()}
    assert statuses == {old: "DELETE", young: "HOLD", other: "HOLD", due: "DELIVER"}


@pytest.mark.parametrize("role", ["queued", "maintainer"])
def test_every_maintenance_function_runs_with_granted_rights(factory: Factory, logins: Logins, role: str) -> None:
    asked = factory.row(status="DELETE")
    with logins.session(role) as session:
        finished = session.execute("SELECT * FROM maintain_finish('me', 10)").fetchall()
        assert [tuple(row) for row in finished] == [("deleted", 1)]
        for call in (
            "maintain_sweep('0s', '7d', 10)",
            "maintain_hold_poison(3, 10)",
            "maintain_renotify('1m', 10)",
            "maintain_history_drop('30d', '90d')",
            "maintain_forget_keys('7d', 10)",
            "maintain_forget_notices('7d', 10)",
            "maintain_clock(10)",
            "history_create(9)",
            "pace_forget()",
        ):
            session.execute(f"SELECT {call}".encode())
        session.execute("SELECT * FROM maintain_vacuum")
    assert [row.id for row in factory.archive()] == [asked]
    assert factory.bodies() == {}


def test_a_maintainer_sees_and_requeues_dead_letters(factory: Factory, logins: Logins) -> None:
    dead = factory.row(status="HOLD")
    factory.sql(
        "UPDATE pillarbox.queue SET metadata = metadata || '{\"_quarantineid\": \"poison\"}', status = 'DELETE'"
    )
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")
    with logins.session("maintainer") as maintainer:
        [letter] = maintainer.execute("SELECT id, result, body, requeued FROM dead_letters").fetchall()
        assert tuple(letter) == (dead, "lock_expired", True, False)
        [answer] = maintainer.execute("SELECT * FROM dead_letters_requeue(%s)", ([dead],)).fetchall()
        assert (len(answer.requeued), answer.gone) == (1, 0)
        assert [row.requeued for row in maintainer.execute("SELECT requeued FROM dead_letters")] == [True]


def test_an_analyst_reads_the_history(factory: Factory, logins: Logins) -> None:
    factory.row(status="DELETE")
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")
    with logins.session("analyst") as analyst:
        assert len(analyst.execute("SELECT * FROM archive").fetchall()) == 1
        assert analyst.execute("SELECT * FROM attempts").fetchall() == []


def test_roles_are_created_once_or_beforehand_by_an_administrator(factory: Factory) -> None:
    """A login that may not create roles, with existing roles: every right is still granted."""
    names = ("smtpd", "queued", "reviewer", "analyst", "maintainer", "application", "agent")
    found = factory.sql(
        "SELECT rolname FROM pg_roles WHERE rolname = ANY(%(names)s) AND NOT rolcanlogin AND NOT rolsuper",
        names=[f"pillarbox_{name}" for name in names],
    )
    assert len(found) == len(names)


def test_a_schema_can_be_created_without_the_right_to_create_roles(
    factory: Factory, superuser: Factory, logins: Logins
) -> None:
    from shared.postgres.migrate import migrate  # noqa: PLC0415 - only this test makes a schema

    uri = logins.uri("analyst")
    factory.sql("DROP SCHEMA pillarbox CASCADE")
    with psycopg.connect(uri) as session:
        name = session.info.user
    database_name = factory.one("SELECT current_database()")
    factory.sql(f"GRANT CREATE ON DATABASE {database_name} TO {name}")
    migrate(uri, {"123": ["1", "2", "3"]})
    granted = superuser.one("SELECT has_table_privilege('pillarbox_analyst', 'pillarbox.archive', 'SELECT')")
    assert granted
    factory.sql(f"REVOKE CREATE ON DATABASE {database_name} FROM {name}")


def test_a_login_that_takes_the_owners_role_is_an_operator(
    superuser: Factory, factory: Factory, logins: Logins
) -> None:
    """As hosted databases set it up: the login inherits nothing, and a setting of it says whose role it takes."""
    uri, owner = logins.uri("reviewer"), factory.one("SELECT current_user")
    name = name_of(uri)
    superuser.sql(f"ALTER ROLE {name} NOINHERIT")
    superuser.sql(f"GRANT {owner}, pillarbox_reviewer TO {name}")
    superuser.sql(f"ALTER ROLE {name} SET role = '{owner}'")
    with psycopg.connect(uri, autocommit=True) as session:
        assert session.execute("SELECT pillarbox.is_operator()").fetchone() == (True,)
        session.execute("SET ROLE pillarbox_reviewer")
        assert session.execute("SELECT pillarbox.is_operator()").fetchone() == (False,)
    superuser.sql(f"REVOKE {owner} FROM {name}")


async def test_a_worker_shares_limits_and_suspends_with_its_own_rights(factory: Factory, logins: Logins) -> None:
    pool = await db.open_pool(logins.uri("queued"), "worker", 2)
    policy = {"id": "p", "concurrency": 1, "rate": "5/sec", "shared": True}
    paces = Paces(Pacing.model_validate({"policies": [policy]}))
    mail = Fields("default", "example.com")
    assert isinstance(paces.ask(mail), Deferral)
    await paces.shares.round(pool)
    turn = paces.ask(mail)
    assert isinstance(turn, Turn)
    turn.done()
    await paces.leave(pool)
    waiting = factory.row(due=timedelta(minutes=5), tries=1)
    paces.suspend({"destination": ["example.com"]}, 60, "421 later", "rule")
    async with pool.connection() as connection:
        await paces.suspends.follow(connection, "true")
        factory.sql("DELETE FROM pillarbox.suspends WHERE who = 'rule'")
        await paces.suspends.follow(connection, "true")
        await db.fetch(connection, "pace_forget")
    await pool.close()
    assert factory.sql("SELECT id FROM pillarbox.queue WHERE next_retry <= now()")[0].id == waiting
