"""test_any_login — a login that may only connect to the database cannot stop mail or maintenance

Owns: attacks by a foreign login with advisory locks, with PostgreSQL's notification queue, and with payloads.
See: sql/README.md, "Lock order"; docs/explanation/wake-up.md.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from operate.partitions import run as partitions_run
from queued.dsn.send import DsnSender as Notices
from queued.maintain import Maintainer
from scripts.deadletters.watch import Watcher
from shared.config.queued.bounces import Bounces
from shared.config.queued.settings import Maintenance
from shared.postgres import account_schema
from shared.postgres import database as db
from shared.postgres.embedded import embedded
from shared.postgres.migrate import known, migrate
from sql import __file__ as sql_file
from tests.fixtures.daemons.submissions import recipient, running_spool, submission
from tests.fixtures.database.accounts import Accounts
from tests.fixtures.database.results import FAILED, claim, finished, running_recorder
from tests.fixtures.heard import until
from tests.fixtures.servers.killable import Killable
from tests.fixtures.servers.postgres import LEAVES, choose, temporary_var
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

# The keys of the versions before; those of today, had they any, would be found by the tests below.
KEYS = tuple(f"pillarbox.{name}" for name in ("maintain", "history_create", "migrate", "partitions", "notices"))


@contextmanager
def stranger(uri: str) -> Iterator[str]:
    """The conninfo of a login that may connect and nothing else."""
    name, password = f"stranger_{uuid.uuid4().hex[:12]}", "only-for-tests"
    with psycopg.connect(uri, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'".encode())
        try:
            yield make_conninfo(uri, user=name, password=password)
        finally:
            owner.execute(f"DROP ROLE {name}".encode())


@pytest.fixture
def locked(factory: Factory) -> Iterator[psycopg.Connection[Any]]:
    """A session of a foreign login that holds every advisory lock we ever used."""
    with stranger(factory.uri) as uri, psycopg.connect(uri, autocommit=True) as session:
        for key in KEYS:
            session.execute("SELECT pg_advisory_lock(hashtext(%s))", (key,))
        yield session


async def test_maintenance_continues_while_a_foreign_login_holds_all_advisory_locks(
    factory: Factory, locked: psycopg.Connection[Any]
) -> None:
    factory.row(status="DELETE")
    connection = await db.connect(factory.uri, "worker")
    try:
        async with asyncio.timeout(PATIENCE):
            assert await Maintainer("worker", Maintenance()).round_if_elected(connection)
            assert factory.queue() == []
            assert await Notices(Bounces()).send_due(connection) == 0
            [row] = await db.fetch(connection, "notice_elect")
            assert row[0]
            # Yesterday and today, of attempts and of the archive.
            assert factory.one("SELECT pillarbox.history_create(now() + interval '400 days', 0)") == 4
            assert await asyncio.to_thread(migrate, factory.uri, LEAVES, patience=5) is not None
            async with partitions_run.alone(connection):
                pass
    finally:
        await connection.close()


def test_a_first_migration_ignores_a_foreign_advisory_lock(empty_database: str) -> None:
    with stranger(empty_database) as uri, psycopg.connect(uri, autocommit=True) as session:
        session.execute("SELECT pg_advisory_lock(hashtext('pillarbox.migrate'))")
        assert len(migrate(empty_database, LEAVES, patience=5).applied) == len(known())


def test_no_code_uses_advisory_locks(factory: Factory) -> None:
    functions = factory.sql(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'pillarbox'::regnamespace AND prosrc LIKE '%%advisory%%'"
    )
    assert functions == []
    queries = Path(str(sql_file)).parent / "queries"
    assert [path.name for path in queries.glob("*/*.sql") if "advisory" in path.read_text(encoding="utf-8")] == []


def test_a_foreign_login_cannot_take_our_locks(factory: Factory) -> None:
    with stranger(factory.uri) as uri, psycopg.connect(uri, autocommit=True) as session:
        for attack in (
            "LOCK TABLE pillarbox.repartition_lock IN SHARE UPDATE EXCLUSIVE MODE",
            "LOCK TABLE pillarbox.migrations IN ACCESS SHARE MODE",
            "SELECT FROM pillarbox.locks FOR UPDATE",
            "SELECT pillarbox.lock_try('notices')",
            "SELECT pillarbox.lease_take('maintain', 'x', '1m')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), session.transaction():
                session.execute(attack.encode())


async def test_the_repartitioning_lock_does_not_block_vacuum_and_ends_with_its_session(factory: Factory) -> None:
    connection = await db.connect(factory.uri, "repartitioning")
    guard = (
        "SELECT backend_xid, backend_xmin FROM pg_stat_activity WHERE application_name = 'pillarbox partitions lock'"
    )
    async with partitions_run.alone(connection):
        assert [tuple(row) for row in factory.sql(guard)] == [(None, None)]
        assert factory.terminate("pillarbox partitions lock") == 1
        with pytest.raises(db.OUTAGE):
            await connection.execute("SELECT pg_sleep(20)")
    await connection.close()


@contextmanager
def full_of_notifications(uri: str) -> Iterator[None]:
    """The queue of notifications is full, by a login with CONNECT only, as long as the block."""
    with stranger(uri) as login, psycopg.connect(login) as deaf, psycopg.connect(login, autocommit=True) as loud:
        deaf.execute("LISTEN x")
        deaf.commit()
        deaf.execute("SELECT 1")  # and stays in this transaction
        try:
            while True:
                loud.execute("SELECT pg_notify('x', repeat('x', 7000) || n) FROM generate_series(1, 10) AS n")
        except psycopg.errors.ProgramLimitExceeded:
            yield


async def test_a_full_notification_queue_does_not_block_mail_or_results(heard: Heard) -> None:
    if choose()[0] == "debian15":
        pytest.skip("max_notify_queue_pages came with PostgreSQL 17: 8 GB would have to be written")
    with temporary_var() as var:
        server = Killable(var)
        with psycopg.connect(server.administrator, autocommit=True) as owner:
            owner.execute("ALTER SYSTEM SET max_notify_queue_pages = 64")
        embedded.stop(var, mode="fast")
        server.start()
        migrate(server.uri, LEAVES)
        account_schema.install(server.uri, "accounts")
        try:
            with full_of_notifications(server.uri), psycopg.connect(server.uri, autocommit=True) as owner:
                with pytest.raises(psycopg.errors.ProgramLimitExceeded):
                    owner.execute("NOTIFY pillarbox")
                async with asyncio.timeout(PATIENCE), running_spool(server.uri) as spool:
                    await spool.submit(submission(recipient("1")))  # alone
                    crowd = [recipient("2", str(n)) for n in range(4)]
                    await spool.submit(submission(*crowd))  # in one round trip
                    await spool.submit(submission(*[recipient("3", str(n)) for n in range(20)]))  # by COPY
                    await heard.wait("wakeup.unsent")
                owner.execute("SELECT pillarbox.enqueue('a@b.example', ARRAY['c@d.example'], 'x')")
                # Sign-ups, and accounts that are suspended no more, wake collectors unless there is no room for that.
                accounts = Accounts(server.uri, "accounts")
                accounts.add("ann")
                known = accounts.add_active("known")
                for status in ("suspended", "active"):
                    accounts.sql("UPDATE accounts SET status = %s WHERE id = %s", status, known)
                assert accounts.one("SELECT count(*) FROM tokens WHERE consumed_at IS NULL") == 1
                accounts.connection.close()
                claimed = await claim(server.uri, 100)
                assert len(claimed) == 26  # all of them
                async with asyncio.timeout(PATIENCE), running_recorder(server.uri) as recorder:
                    recorder.add([finished(c, FAILED, "failed") for c in claimed])
                    await recorder.drained()
                assert owner.execute("SELECT count(*) FROM pillarbox.archive").fetchone() == (26,)
        finally:
            embedded.stop(var, mode="immediate")
    assert heard.all("spool.unavailable") == heard.all("spool.refused") == heard.all("result.unrecorded") == []


@pytest.mark.parametrize("payload", ["²", "٣", "9" * 19, "9" * 4000, "-1", "1e3", "", "id", "\x07"])
async def test_an_invalid_payload_does_not_end_the_watch(factory: Factory, payload: str) -> None:
    """The first of them did: str.isdigit says yes to it, int says no."""
    printed: list[str] = []
    connection = await db.connect(factory.uri, "watch")
    watching = asyncio.create_task(Watcher(datetime.now(UTC), printed.append).follow(connection))
    listening = """SELECT FROM pg_stat_activity
                    WHERE application_name = 'watch' AND state = 'idle' AND query LIKE '%%dead_letters%%'"""
    try:
        await until(lambda: factory.sql(listening), "the watch to listen")
        with stranger(factory.uri) as uri, psycopg.connect(uri, autocommit=True) as session:
            session.execute("SELECT pg_notify('dead_message', %s)", (payload,))
        factory.row()
        [claimed] = await claim(factory.uri)
        async with running_recorder(factory.uri) as recorder:
            recorder.add([finished(claimed, FAILED, "failed")])
            await recorder.drained()
            await until(lambda: printed or watching.done(), "the dead letter to be reported")
        assert len(printed) == 1
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await connection.close()
