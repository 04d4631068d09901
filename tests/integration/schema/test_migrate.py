"""test_migrate — migrations run once, completely or not at all, with concurrent starts and kills

Owns: proofs about shared/postgres/migrate.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import shared.postgres.migrate
from shared.errors import ConfigError, DatabaseUnavailable, SchemaMismatch
from shared.mail.message import Address, Recipient
from shared.postgres.migrate import Migration, check, compare, known, migrate, missing
from tests.fixtures.daemons.submissions import running_spool, submission
from tests.fixtures.database.operating import write_config
from tests.fixtures.database.results import claim
from tests.fixtures.heard import until
from tests.fixtures.servers.postgres import LEAVES
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.servers.postgres import ServerUnderTest

#: The migrations of a process with three more than this code.
LATER = [f"{number:04}_pre_later" for number in range(known()[-1].number + 1, known()[-1].number + 4)]
MIGRATE = """
import sys
from shared.postgres import migrate
steps = [*migrate.known(), *(migrate.Migration(int(name[:4]), "pre", name, "SELECT 1") for name in sys.argv[2:])]
migrate.known = lambda: steps
print(*migrate.migrate(sys.argv[1], {"123": ["1", "2", "3"], "456": ["4", "5", "6"]}).applied)
"""
#: The least content of the migrations table of a development version.
UNRELEASED = """
DELETE FROM pillarbox.migrations;
INSERT INTO pillarbox.migrations (number, name)
SELECT n, to_char(n, 'FM0000') || CASE n WHEN 1 THEN '_pre_tables' ELSE '_pre_x' END FROM generate_series(1, 36) AS n
"""


def fingerprint(uri: str) -> list[tuple[object, ...]]:
    """Every object of our schema with its shape."""
    with psycopg.connect(uri) as connection:
        return connection.execute(
            """SELECT c.relname::text, c.relkind::text, pg_get_expr(c.relpartbound, c.oid), c.reloptions::text,
                      (SELECT array_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) ORDER BY a.attnum)
                         FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0)::text,
                      (SELECT array_agg(tgname ORDER BY tgname) FROM pg_trigger g WHERE g.tgrelid = c.oid)::text
                 FROM pg_class c WHERE c.relnamespace = to_regnamespace('pillarbox') ORDER BY 1"""
        ).fetchall()


def leftovers(uri: str) -> int:
    """Tables and types of ours in a database."""
    with psycopg.connect(uri) as connection:
        row = connection.execute(
            """SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('pillarbox'))
                    + (SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace('pillarbox'))"""
        ).fetchone()
    assert row is not None
    return int(row[0])


def start(uri: str, **environment: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-c", MIGRATE, uri, *LATER)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})


def words(command: str, folder: Path) -> tuple[str, ...]:
    """The command line of a daemon, or of a command of `pillarbox`."""
    daemons = {
        "smtpd": ("smtpd", "--config", str(folder / "smtpd.yaml")),
        "queued": ("queued", "--config", str(folder / "queued.yaml"), "--worker", "queued-123"),
    }
    return (sys.executable, "-m", *daemons.get(command, ("scripts.cli", command, "--config", str(folder))))


@pytest.fixture(params=["server", "debian15"])
def either(request: pytest.FixtureRequest) -> ServerUnderTest:
    """The server of this run, and the oldest that we support."""
    found: ServerUnderTest = request.getfixturevalue(request.param)
    return found


def test_an_ordinary_role_can_migrate_and_all_objects_are_in_our_schema(either: ServerUnderTest) -> None:
    with either.fresh_database() as uri:
        assert migrate(uri, LEAVES).applied == tuple(step.name for step in known())
        with psycopg.connect(uri) as connection:
            [who] = connection.execute(
                """SELECT current_user::text, rolsuper, current_setting('search_path')
                     FROM pg_roles WHERE rolname = current_user"""
            ).fetchall()
            assert who == ("mailops", False, '"$user", public')
            elsewhere = connection.execute(
                """SELECT relname::text FROM pg_class WHERE relowner = current_user::regrole
                      AND relnamespace NOT IN (to_regnamespace('pillarbox'), 'pg_toast'::regnamespace)
                   UNION ALL
                   SELECT proname::text FROM pg_proc WHERE proowner = current_user::regrole
                      AND pronamespace <> to_regnamespace('pillarbox')"""
            ).fetchall()
            assert elsewhere == []


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def other_encoding(server: ServerUnderTest, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URI of an empty database of this encoding."""
    name = server.create_database(
        template="template0", options=f"ENCODING '{request.param}' LOCALE 'C' LOCALE_PROVIDER libc"
    )
    yield server.uri_of(name)
    server.drop_database(name)


@pytest.mark.parametrize("command", ["migrate", "up", "doctor", "smtpd", "queued"])
def test_a_database_of_another_encoding_is_refused_before_the_first_migration(
    other_encoding: str, tmp_path: Path, command: str
) -> None:
    line = words(command, write_config(tmp_path, other_encoding))
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0
    assert re.search(
        r'database "\w+" has the encoding (LATIN1|SQL_ASCII), and Pillarbox needs UTF8',
        " ".join((done.stdout + done.stderr).split()),
    )
    assert "Traceback" not in done.stderr
    assert leftovers(other_encoding) == 0


@pytest.mark.parametrize("place", ["role", "environment"])
async def test_another_client_encoding_stops_neither_migrations_nor_mail(
    empty_database: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The schema has characters, and envelopes may have some, that LATIN1 does not."""
    uri = empty_database
    if place == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    else:
        uri = make_conninfo(uri, options="-c client_encoding=LATIN1")
    assert migrate(uri, LEAVES).applied
    known_to = Recipient(Address("пример", "example.com"), "1")
    async with running_spool(uri) as spool:
        await spool.submit(submission(known_to, smtputf8=True))
    [claimed] = await claim(uri)
    assert claimed.recipient == known_to.address


def test_the_first_run_migrates_everything_and_the_next_nothing(empty_database: str) -> None:
    first = migrate(empty_database, LEAVES)
    assert first.applied == tuple(migration.name for migration in known())
    assert first.leaves == ("queue_def_123", "queue_def_456")
    check(empty_database)
    before = fingerprint(empty_database)
    second = migrate(empty_database, LEAVES)
    assert (second.applied, second.leaves) == ((), ())
    assert fingerprint(empty_database) == before


def test_concurrent_migrations_apply_each_step_once(empty_database: str) -> None:
    both = [start(empty_database) for _ in range(2)]
    done = [name for each in both for name in each.communicate(timeout=PATIENCE)[0].split()]
    assert [each.returncode for each in both] == [0, 0]
    assert sorted(done) == [*(migration.name for migration in known()), *LATER]
    check(empty_database)


def test_a_kill_inside_a_step_keeps_earlier_steps(empty_database: str, tmp_path: Path) -> None:
    kill = {"PILLARBOX_FAIL": f"migrate.before_commit:kill:{len(known()) + 2}"}
    migrating = start(empty_database, **kill, PILLARBOX_FAIL_MARK=str(tmp_path / "killed"))
    migrating.communicate(timeout=PATIENCE)
    assert migrating.returncode < 0
    with psycopg.connect(empty_database) as connection:
        applied = connection.execute("SELECT name FROM pillarbox.migrations ORDER BY number").fetchall()
    assert applied == [*((migration.name,) for migration in known()), (LATER[0],)]
    assert start(empty_database).communicate(timeout=PATIENCE)[0].split() == LATER[1:]


async def test_a_kill_during_the_first_step_leaves_nothing(empty_database: str) -> None:
    """It is held up half-way by another session that is making a type of the same name."""
    with psycopg.connect(empty_database) as holding:
        holding.execute("CREATE SCHEMA pillarbox")
        holding.commit()
        holding.execute("CREATE TYPE pillarbox.queue_status AS ENUM ('X')")
        migrating = start(empty_database)

        def half_way() -> bool:
            row = holding.execute(
                """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                      AND application_name = 'pillarbox migrate' AND wait_event_type = 'Lock'"""
            ).fetchone()
            holding.execute("SELECT pg_stat_clear_snapshot()")
            return row == (1,)

        await until(half_way, "the migration to be held up half-way")
        migrating.kill()
        migrating.communicate(timeout=PATIENCE)
        holding.rollback()
    assert migrating.returncode < 0
    assert migrate(empty_database, LEAVES).applied == tuple(migration.name for migration in known())
    check(empty_database)


def test_a_failed_migration_leaves_nothing(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA pillarbox")
        connection.execute("CREATE VIEW pillarbox.report_minutes AS SELECT 1")  # created near the end of the schema
    before = leftovers(empty_database)
    with pytest.raises(psycopg.errors.DuplicateTable):
        migrate(empty_database, LEAVES)
    assert leftovers(empty_database) == before
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("DROP VIEW pillarbox.report_minutes")
    migrate(empty_database, LEAVES)
    check(empty_database)


def test_a_newer_incompatible_schema_is_refused_unchanged(factory: Factory) -> None:
    factory.sql(
        "INSERT INTO pillarbox.migrations (number, name) VALUES (9997, '9997_pre_x'), (9998, '9998_post_tomorrow')"
    )
    before = fingerprint(factory.uri)
    for refuse in (check, lambda uri: migrate(uri, {"new": ["n"]})):
        with pytest.raises(SchemaMismatch, match=r"newer than this code: it has 9998_post_tomorrow; upgrade"):
            refuse(factory.uri)
    assert fingerprint(factory.uri) == before


def test_a_newer_compatible_schema_is_accepted(factory: Factory) -> None:
    factory.sql("INSERT INTO pillarbox.migrations (number, name) VALUES (9998, '9998_pre_tomorrow')")
    check(factory.uri)
    assert migrate(factory.uri, LEAVES).applied == ()


def test_new_code_requires_pre_migrations_and_not_post_migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [Migration(n, phase, f"{n:04}_{phase}_x", "") for n, phase in ((1, "pre"), (2, "pre"), (3, "post"))]
    monkeypatch.setattr(shared.postgres.migrate, "known", lambda: steps)
    assert compare({1: "0001_pre_x", 2: "0002_pre_x"}, "it") == []
    with pytest.raises(SchemaMismatch, match=r"older than this code: 0002_pre_x missing"):
        compare({1: "0001_pre_x"}, "it")
    assert missing({1: "0001_pre_x"}, only_pre=True) == [steps[1]]
    assert missing({1: "0001_pre_x"}) == steps[1:]
    steps.append(Migration(4, "pre", "0004_pre_y", ""))
    with pytest.raises(SchemaMismatch, match=r"0004_pre_y comes after 0003_post_x, which old daemons"):
        missing({1: "0001_pre_x", 2: "0002_pre_x"}, only_pre=True)


def test_an_older_schema_is_refused_with_the_remedy(factory: Factory, empty_database: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"0001_pre_schema missing; run `pillarbox migrate`"):
        check(empty_database)
    factory.sql("DELETE FROM pillarbox.migrations")
    with pytest.raises(SchemaMismatch, match="older than this code"):
        check(factory.uri)


def test_the_schema_of_a_development_version_is_refused_unchanged(factory: Factory) -> None:
    factory.sql(UNRELEASED)
    before = fingerprint(factory.uri)
    for refuse in (check, lambda uri: migrate(uri, {"new": ["n"]}), lambda uri: migrate(uri, {}, only_pre=True)):
        with pytest.raises(
            SchemaMismatch, match=r'^database "\w+" was made by a development version from before 0\.1\.0'
        ):
            refuse(factory.uri)
    assert fingerprint(factory.uri) == before


@pytest.mark.parametrize("command", ["migrate", "up", "doctor", "smtpd", "queued"])
def test_each_command_gives_the_remedy_for_a_development_schema(factory: Factory, tmp_path: Path, command: str) -> None:
    factory.sql(UNRELEASED)
    line = words(command, write_config(tmp_path, factory.uri))
    wide = {**os.environ, "COLUMNS": "1000"}  # doctor prints a table
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=60, env=wide)
    assert done.returncode != 0
    printed = " ".join((done.stdout + done.stderr).split())
    assert "pillarbox.migrations has 0001_pre_tables where this code has 0001_pre_schema" in printed
    assert "make a new database and run `pillarbox migrate`" in printed
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("leaves", "why"),
    [
        ({"123": ["1", "2"]}, "exists"),  # another set for a leaf that is there
        ({"new": ["3", "30"]}, "overlap"),  # a value that belongs to another leaf
        ({"new": ["waiting"]}, "default"),  # a value for which mail waits in the default leaf
    ],
)
def test_leaves_that_contradict_existing_ones_are_refused(
    factory: Factory, leaves: Mapping[str, list[str]], why: str
) -> None:
    factory.row(partid="waiting")
    before = fingerprint(factory.uri)
    with pytest.raises(ConfigError, match=why) as refusal:
        migrate(factory.uri, leaves)
    assert f"environment.database.partitions.leaves.{next(iter(leaves))}: " in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert fingerprint(factory.uri) == before


def test_the_order_of_ids_in_a_leaf_does_not_matter(factory: Factory) -> None:
    assert migrate(factory.uri, {"123": ["3", "1", "2"]}).leaves == ()


def test_mail_in_the_default_leaf_stays_there_when_leaves_are_created(factory: Factory) -> None:
    waiting = factory.row(partid="7")
    assert migrate(factory.uri, {**LEAVES, "eight": ["8"]}).leaves == ("queue_def_eight",)
    assert [row.leaf for row in factory.queue(waiting)] == ["queue_def_def"]
    assert factory.queue(factory.row(partid="8"))[0].leaf == "queue_def_eight"


def test_an_unreachable_server_is_one_line(tmp_path: object) -> None:
    for ask in (check, lambda uri: migrate(uri, LEAVES)):
        with pytest.raises(DatabaseUnavailable) as refusal:
            ask(f"postgresql:///nowhere?host={tmp_path}&password=secret")
        assert "\n" not in str(refusal.value)
        assert "secret" not in str(refusal.value)
