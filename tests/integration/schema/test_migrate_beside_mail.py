"""test_migrate_beside_mail — a migration does not block mail, and yields if both want the same locks

Owns: proofs about the locks of shared/postgres/migrate.py.
See: sql/README.md, "Migrations beside mail".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import shared.postgres.migrate
from shared.errors import PillarboxError
from shared.postgres.migrate import LOCK_TIMEOUT, Migration, known, migrate
from tests.fixtures.heard import until
from tests.fixtures.servers.postgres import LEAVES
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

NAME = "9000_pre_tomorrow"
_SQL = """ALTER TABLE pillarbox.archive ADD COLUMN tomorrow text;
          SELECT pg_sleep(0.3);
          ALTER TABLE pillarbox.attempts ADD COLUMN tomorrow text"""
_WORKING = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                 AND application_name = 'pillarbox migrate' AND wait_event = 'PgSleep'"""
_HISTORY = """INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, transportid,
                                              recipientdomain, size, outcome, scope, duration)
              SELECT now(), n, gen_random_uuid(), 1, n, 'w', 'default', 'a.example', 1, 'delivered', 'recipient', '1 s'
                FROM generate_series(1, 100000) AS n"""
# Five pages a second. After ten seconds another autovacuum comes round, for a BRIN index, and PostgreSQL ends this one.
_SLOW_VACUUM = """DO $$ BEGIN
    EXECUTE format('ALTER TABLE %s SET (autovacuum_vacuum_insert_threshold = 1,
                                        autovacuum_vacuum_insert_scale_factor = 0,
                                        autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1)',
                   (SELECT tableoid::regclass FROM pillarbox.attempts LIMIT 1));
END $$"""
_VACUUMING = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND backend_type = 'autovacuum worker' AND query LIKE 'autovacuum: VACUUM %attempts%'"""
_WIDENED = """SELECT count(*) FROM pg_attribute WHERE attname = 'tomorrow'
                 AND attrelid IN ('pillarbox.archive'::regclass, 'pillarbox.attempts'::regclass)"""


@pytest.fixture(autouse=True)
def tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that needs two tables which mail writes, one after the other."""
    steps = [*known(), Migration(9000, "pre", NAME, _SQL)]
    monkeypatch.setattr(shared.postgres.migrate, "known", lambda: steps)


def widened(factory: Factory) -> int:
    """How many of the two tables have the new column."""
    return int(factory.one(_WIDENED))


async def test_a_migration_yields_its_locks_to_mail(factory: Factory) -> None:
    with factory.another("mail") as mail:
        mail.execute("LOCK TABLE pillarbox.attempts IN ROW EXCLUSIVE MODE")
        migrating = asyncio.create_task(asyncio.to_thread(migrate, factory.uri, LEAVES))
        await until(lambda: factory.one(_WORKING), "the migration to have the first of its locks")
        # It has a lock that mail wants now, and will want one that mail has: PostgreSQL ends the one that waited
        # first, unless the other gives way.
        await asyncio.to_thread(mail.execute, "LOCK TABLE pillarbox.archive IN ROW EXCLUSIVE MODE")
        mail.commit()
    assert (await migrating).applied == (NAME,)
    assert widened(factory) == 2


async def test_mail_does_not_wait_behind_a_waiting_migration(factory: Factory) -> None:
    lines: list[str] = []
    with factory.another("nightly report") as report:
        report.execute("LOCK TABLE pillarbox.attempts IN ACCESS SHARE MODE")
        migrating = asyncio.create_task(asyncio.to_thread(migrate, factory.uri, LEAVES, tell=lines.append))
        factory.sql(f"SET lock_timeout = {10 * LOCK_TIMEOUT}")  # an error when mail waits longer
        while not lines:
            await asyncio.to_thread(factory.sql, "DELETE FROM pillarbox.attempts WHERE false")
            assert not migrating.done()
        factory.sql("RESET lock_timeout")
        report.commit()
    assert (await migrating).applied == (NAME,)
    [line] = lines
    assert line.startswith(f"{NAME} waits for locks held by pid ")
    assert "(nightly report, idle in transaction, " in line


async def test_a_migration_without_its_locks_changes_nothing_and_names_their_holder(factory: Factory) -> None:
    with factory.another("nightly report") as report:
        report.execute("LOCK TABLE pillarbox.attempts IN ACCESS SHARE MODE")
        with pytest.raises(
            PillarboxError, match=rf"{NAME} did not get its locks .* \(nightly report, idle in"
        ) as error:
            await asyncio.to_thread(migrate, factory.uri, LEAVES, patience=0.3)
    assert "\n" not in str(error.value)
    assert widened(factory) == 0
    assert (await asyncio.to_thread(migrate, factory.uri, LEAVES)).applied == (NAME,)


async def test_a_long_autovacuum_is_cancelled(
    factory: Factory, superuser: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL cancels it for a session that waits for deadlock_timeout, and not for one that gives up before."""
    factory.sql(_HISTORY)
    factory.sql(_SLOW_VACUUM)
    await eventually(lambda: superuser.one(_VACUUMING), "autovacuum comes round", limit=90.0)
    monkeypatch.setattr(shared.postgres.migrate, "_FIRST_PAUSE", 0.1)
    monkeypatch.setattr(shared.postgres.migrate, "_LONGEST_PAUSE", 0.1)
    assert (await asyncio.to_thread(migrate, factory.uri, LEAVES, patience=2.0)).applied == (NAME,)
