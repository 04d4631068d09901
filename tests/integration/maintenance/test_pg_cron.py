"""test_pg_cron — with pg_cron, the database maintains itself

Owns: proofs about sql/pg_cron.sql on Debian's PostgreSQL 15, in a server of its own, because pg_cron must be preloaded
    and serves one database.
See: pg_cron's README; tests/fixtures/servers/postgres.py for the servers of the other tests.
Bugs: pg_cron 1.4 works by the minute, so this test waits for one to begin.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import namedtuple_row

from shared.config.queued.settings import Maintenance
from shared.config.units import parse_duration
from shared.postgres.embedded import embedded
from shared.postgres.embedded.postmaster import ServerFiles
from shared.postgres.embedded.server import EmbeddedServer
from shared.postgres.migrate import migrate
from tests.fixtures.database.factory import Factory
from tests.fixtures.database.listening import LISTEN
from tests.fixtures.servers.owner import DATABASE, ROLE, hand_over
from tests.fixtures.servers.postgres import LEAVES, temporary_var
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

BINARIES = Path("/usr/lib/postgresql/15/bin")
CONTROL = Path("/usr/share/postgresql/15/extension/pg_cron.control")
SCRIPT = (Path(__file__).parents[3] / "sql" / "pg_cron.sql").read_text(encoding="utf-8")
NAMES = {
    *("hold_poison", "finish", "sweep", "renotify", "unserved", "forget_keys", "forget_notices"),
    *("history_create", "history_drop", "vacuum", "forget_runs"),
}
THREE_MINUTES = 180.0


@pytest.fixture
def cron() -> Iterator[Factory]:
    """A migrated database on a server with pg_cron."""
    for needed, package in ((BINARIES / "postgres", "postgresql-15"), (CONTROL, "postgresql-15-cron")):
        if not needed.exists():
            # .ci/run says when both must be there; elsewhere the system's archive may not have them at all.
            missing = pytest.fail if os.environ.get("PILLARBOX_POSTGRES15") == "required" else pytest.skip
            missing(f"no {needed}: apt-get install {package}")
    with temporary_var() as var:
        place = ServerFiles(var)
        server = EmbeddedServer(BINARIES, 15, place)
        server.start()
        embedded.stop(var)
        with (place.data / "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.write("shared_preload_libraries = 'pg_cron'\n")
            conf.write(f"cron.database_name = '{DATABASE}'\n")
            conf.write(f"cron.host = '{place.socket()}'\n")
        administrator = server.start().uri
        uri = hand_over(administrator)
        with psycopg.connect(make_conninfo(administrator, dbname=DATABASE)) as connection:
            # Making the extension is for a superuser, using it is not.
            connection.execute("CREATE EXTENSION pg_cron")
            connection.execute(f"GRANT USAGE ON SCHEMA cron TO {ROLE}".encode())
            # Only for this test, which has no hour to wait.
            connection.execute(f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA cron TO {ROLE}".encode())
        migrate(uri, LEAVES)
        with psycopg.connect(uri, autocommit=True, row_factory=namedtuple_row) as connection:
            yield Factory(uri, connection)


@pytest.mark.slow
async def test_the_database_runs_maintenance_by_pg_cron(cron: Factory) -> None:
    for _ in range(2):  # the second time changes nothing
        cron.sql(SCRIPT)
        jobs = {row.jobname: row.command for row in cron.sql("SELECT * FROM cron.job")}
        assert set(jobs) == {f"pillarbox {name}" for name in NAMES}

    plan_damage(cron)
    # Jobs that run hourly or less often are run now.
    cron.sql("SELECT cron.alter_job(jobid, schedule => '* * * * *') FROM cron.job")
    cron.sql(LISTEN.decode())
    await eventually(lambda: ran(cron) == NAMES, "every command of pg_cron has succeeded", limit=THREE_MINUTES)

    assert failures(cron) == []
    assert {(row.recipientlocalpart, row.result, row.worker) for row in cron.archive()} == {
        ("asked1", "deleted", "pg_cron"),
        ("asked2", "bounced", "pg_cron"),
    }
    [poisoned] = cron.sql("SELECT * FROM pillarbox.queue WHERE status = 'HOLD'")
    assert poisoned.metadata["_quarantineid"] == "poison"
    assert cron.one("SELECT count(*) FROM pillarbox.bodies WHERE released < now() - interval '10 minutes'") == 0
    assert [row.key for row in cron.sql("SELECT key FROM pillarbox.idempotency")] == ["young"]
    assert cron.one("SELECT to_regclass('pillarbox.attempts_20200101') IS NULL")
    days = cron.one("SELECT count(*) FROM pg_inherits WHERE inhparent = 'pillarbox.archive'::regclass")
    assert days == 9  # from yesterday to a week ahead
    vacuumed = cron.sql("SELECT relname FROM pg_stat_user_tables WHERE vacuum_count > 0 AND schemaname = 'pillarbox'")
    assert {row.relname for row in vacuumed} >= {"queue_def_123", "messages", "refcounts", "released"}
    heard: set[str] = set()

    def all_heard() -> bool:
        heard.update(n.payload for n in cron._connection.notifies(timeout=0.1))
        return heard >= {"4", "5", "6"}

    await eventually(all_heard, "urgent, ordinary and bulk are notified of")
    assert heard - {"3"} == {"4", "5", "6"}  # the poisoned one too, if it was not held within the first minute
    unserved = {row.partid for row in cron.sql("SELECT partid FROM pillarbox.unserved")}
    assert unserved - {"3"} == {"4", "5", "6"}
    assert cron.one("SELECT count(*) FROM pillarbox.notice_counts") == 0


def test_its_figures_are_the_defaults_of_the_configuration() -> None:
    settings = Maintenance()
    assert int(figure(r"maintain_hold_poison\((\d+),")) == settings.poison
    assert duration(r"maintain_renotify_since\('(\w+)',") == settings.overdue
    assert duration(r"maintain_unserved_since\('(\w+)',") == settings.overdue
    assert duration(r"maintain_sweep_since\('(\w+)', '\w+',") == settings.grace
    assert duration(r"maintain_sweep_since\('\w+', '(\w+)',") == settings.keep.deadletters
    assert duration(r"maintain_forget_notices\('(\w+)',") == settings.keep.history
    assert duration(r"maintain_forget_keys\('(\w+)',") == settings.keep.idempotency
    assert duration(r"maintain_history_drop\('(\w+)', '\w+'\)") == settings.keep.history
    assert duration(r"maintain_history_drop\('\w+', '(\w+)'\)") == settings.keep.find
    assert int(figure(r"history_create\((\d+)\)")) == settings.ahead


def plan_damage(cron: Factory) -> None:
    """Something to do for each command."""
    asked = [cron.row(partid="1"), cron.row(partid="2")]
    cron.sql("UPDATE pillarbox.queue SET recipientlocalpart = 'asked' || id WHERE id = ANY(%(ids)s)", ids=asked)
    assert asked == [1, 2]
    cron.move(asked[:1], "DELETE")
    cron.move(asked[1:], "BOUNCE")
    poison = cron.row(partid="3")
    cron.lease([poison], ends=timedelta(seconds=-1))
    cron.sql("UPDATE pillarbox.queue SET lost_count = 2 WHERE id = %(id)s", id=poison)
    for partid, priority in (("4", 5), ("5", 0), ("6", -5)):
        overdue = cron.row(partid=partid, due=timedelta(minutes=-5))
        cron.sql("UPDATE pillarbox.queue SET priority = %(p)s WHERE id = %(id)s", p=priority, id=overdue)
    cron.sql("INSERT INTO pillarbox.notice_counts VALUES (now() - interval '2 days', '', 1)")
    message = cron.message()
    cron.sql("INSERT INTO pillarbox.released VALUES (%(id)s, now() - interval '1 hour')", id=message)
    cron.sql(
        """INSERT INTO pillarbox.idempotency (application, key, messages__id, ts)
           VALUES ('a', 'old', gen_random_uuid(), now() - interval '8 days'),
                  ('a', 'young', gen_random_uuid(), now())"""
    )
    cron.sql(
        """CREATE TABLE pillarbox.attempts_20200101 PARTITION OF pillarbox.attempts
           FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')"""
    )
    cron.sql(
        """DO $$ BEGIN EXECUTE (SELECT 'DROP TABLE ' || string_agg(c.oid::regclass::text, ', ') FROM pg_inherits i
             JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'pillarbox.archive'::regclass
              AND c.relname > 'archive_' || to_char(now() AT TIME ZONE 'UTC' + interval '1 day', 'YYYYMMDD')); END $$"""
    )


def ran(cron: Factory) -> set[str]:
    """The commands that have succeeded."""
    rows: list[Any] = cron.sql(
        """SELECT DISTINCT j.jobname FROM cron.job_run_details r JOIN cron.job j USING (jobid)
            WHERE r.status = 'succeeded'"""
    )
    return {row.jobname.removeprefix("pillarbox ") for row in rows}


def failures(cron: Factory) -> list[str]:
    """The errors of failed commands."""
    return [row.return_message for row in cron.sql("SELECT * FROM cron.job_run_details WHERE status = 'failed'")]


def duration(pattern: str) -> timedelta:
    """A figure of the script as a duration."""
    return parse_duration(figure(pattern))


def figure(pattern: str) -> str:
    """The only occurrence of this figure in the script."""
    [found] = re.findall(pattern, SCRIPT)
    return str(found)
