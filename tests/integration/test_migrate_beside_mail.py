"""test_migrate_beside_mail — a migration keeps nobody waiting, and gives way where it and mail want the same locks

Owns: proofs about the locks of shared/migrate.py.
See: sql/README.md, "Migrations beside mail".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import shared.migrate
from shared.errors import PillarboxError
from shared.migrate import LOCK_TIMEOUT, Migration, known, migrate
from tests.fixtures.heard import until
from tests.fixtures.postgres import LEAVES

if TYPE_CHECKING:
    from tests.fixtures.factory import Factory

NAME = "9000_pre_tomorrow"
_SQL = """ALTER TABLE pillarbox.archive ADD COLUMN tomorrow text;
          ALTER TABLE pillarbox.attempts ADD COLUMN tomorrow text"""
_WIDENED = """SELECT count(*) FROM pg_attribute WHERE attname = 'tomorrow'
                 AND attrelid IN ('pillarbox.archive'::regclass, 'pillarbox.attempts'::regclass)"""


@pytest.fixture(autouse=True)
def tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that needs two tables which mail writes, one after the other."""
    steps = [*known(), Migration(9000, "pre", NAME, _SQL)]
    monkeypatch.setattr(shared.migrate, "known", lambda: steps)


def widened(factory: Factory) -> int:
    """How many of the two tables have the new column."""
    return int(factory.one(_WIDENED))


async def test_mail_that_wants_the_same_locks_in_another_order_gets_them_first(factory: Factory) -> None:
    with factory.another("mail") as mail:
        mail.execute("LOCK TABLE pillarbox.attempts IN ROW EXCLUSIVE MODE")
        migrating = asyncio.create_task(asyncio.to_thread(migrate, factory.uri, LEAVES))
        await until(lambda: factory.waiting("pillarbox migrate"), "the migration to want what mail holds")
        # It holds what mail wants now: without giving way, PostgreSQL would end one of the two.
        await asyncio.to_thread(mail.execute, "LOCK TABLE pillarbox.archive IN ROW EXCLUSIVE MODE")
        mail.commit()
    assert (await migrating).applied == (NAME,)
    assert widened(factory) == 2


async def test_nobody_waits_behind_a_migration_that_waits(factory: Factory) -> None:
    told: list[str] = []
    with factory.another("nightly report") as report:
        report.execute("LOCK TABLE pillarbox.attempts IN ACCESS SHARE MODE")
        migrating = asyncio.create_task(asyncio.to_thread(migrate, factory.uri, LEAVES, tell=told.append))
        factory.sql(f"SET lock_timeout = {2 * LOCK_TIMEOUT}")  # an error when an insert waits longer
        while not told:
            await asyncio.to_thread(factory.sql, "DELETE FROM pillarbox.attempts WHERE false")
            assert not migrating.done()
        factory.sql("RESET lock_timeout")
        report.commit()
    assert (await migrating).applied == (NAME,)
    [line] = told
    assert line.startswith(f"{NAME} waits for locks held by pid ")
    assert "(nightly report, idle in transaction, " in line


async def test_what_never_gets_its_locks_changes_nothing_and_says_who_holds_them(factory: Factory) -> None:
    with factory.another("nightly report") as report:
        report.execute("LOCK TABLE pillarbox.attempts IN ACCESS SHARE MODE")
        with pytest.raises(
            PillarboxError, match=rf"{NAME} did not get its locks .* \(nightly report, idle in"
        ) as error:
            await asyncio.to_thread(migrate, factory.uri, LEAVES, patience=0.3)
    assert "\n" not in str(error.value)
    assert widened(factory) == 0
    assert (await asyncio.to_thread(migrate, factory.uri, LEAVES)).applied == (NAME,)
