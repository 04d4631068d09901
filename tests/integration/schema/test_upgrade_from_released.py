"""test_upgrade_from_released — the database of each release upgrades to the schema of a new one, and keeps its mail

Owns: proofs that sql/migrations turn tests/fixtures/database/schema-*.sql into the schema of a new database.
    A fixture is the plain dump of a database as a release's `pillarbox migrate` made it with LEAVES. Until 0.1.0 is
    released, `python -m scripts.dev.released_dump` writes it, after each change of sql/schema.
See: sql/migrations/README.md; docs/how-to/operate/upgrade.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from scripts.dev.released_dump import fixed
from shared.postgres.migrate import check, known, migrate
from tests.fixtures.database.catalog import described
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from tests.fixtures.servers.postgres import ServerUnderTest

_FIXTURES: Final = Path(__file__).parents[2] / "fixtures" / "database"
#: Each release, and the number of the last migration that it brought.
RELEASES: Final = {"0.1.0": 1}
_ENQUEUE: Final = "SELECT pillarbox.enqueue('a@a.example', '{b@b.example}', 'Subject: x')"
_WAITING: Final = (
    "SELECT recipientdomain, status::text, (SELECT refcount FROM pillarbox.refcounts) FROM pillarbox.queue"
)


@pytest.fixture(params=["server", "debian15"])
def either(request: pytest.FixtureRequest) -> ServerUnderTest:
    """The server of this run, and the oldest that we support."""
    found: ServerUnderTest = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_an_upgraded_database_equals_a_new_one(either: ServerUnderTest, release: str) -> None:
    with either.fresh_database() as fresh, either.fresh_database() as old:
        migrate(fresh, LEAVES)  # which makes the roles, too, that a dump has no word of
        restore(old, release)
        execute(old, _ENQUEUE)
        report = migrate(old, LEAVES)
        assert report.applied == tuple(step.name for step in known() if step.number > RELEASES[release])
        assert report.leaves == ()
        check(old)
        assert described(old) == described(fresh)
        assert execute(old, _WAITING) == [("b.example", "DELIVER", 1)]
        assert migrate(old, LEAVES).applied == ()


def test_the_comparison_finds_differences(database: str) -> None:
    before = described(database)
    execute(database, "GRANT SELECT (id) ON pillarbox.notices TO pillarbox_analyst")
    execute(database, "ALTER FUNCTION pillarbox.kept(interval) STABLE")
    execute(database, "ALTER TABLE pillarbox.principals ALTER COLUMN disabled SET DEFAULT true")
    differing = {name for name, definition in described(database).items() if before.get(name) != definition}
    assert differing == {
        ("right on a column", "notices id pillarbox_analyst"),
        ("function", "kept(interval)"),
        ("column", "principals 7"),
    }


@pytest.mark.parametrize("release", RELEASES)
def test_a_dump_has_fixed_values_for_what_is_random(release: str) -> None:
    dump = (_FIXTURES / f"schema-{release}.sql").read_text(encoding="utf-8")
    assert dump.count("0" * 64) == 2  # the secrets of acting and of erasing
    assert fixed(dump) == dump


def restore(uri: str, release: str) -> None:
    """Fill an empty database with the content of this release."""
    execute(uri, (_FIXTURES / f"schema-{release}.sql").read_text(encoding="utf-8"))


def execute(uri: str, sql: str) -> list[tuple[object, ...]]:
    """Run it; the rows of the last statement, if it has any."""
    with psycopg.connect(uri) as connection:
        cursor = connection.execute(sql.encode())
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []
