"""test_install — the accounts' schema is put into any database, once, and taken away without a trace"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from shared.errors import PillarboxError, SchemaMismatch
from shared.postgres import account_schema
from shared.postgres.migrate import Migration
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.fixtures.database.accounts import Accounts

_OBJECTS = """
    SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT typname::text FROM pg_type WHERE typnamespace = 'public'::regnamespace
"""


def rows(uri: str, statement: str) -> list[Any]:
    """What a statement returns."""
    with psycopg.connect(uri, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_installing_twice_changes_nothing_the_second_time(empty_database: str) -> None:
    assert account_schema.install(empty_database) == ("0001_pre_schema",)
    assert account_schema.install(empty_database) == ()
    account_schema.check(empty_database, "public")


def test_concurrent_installations_take_turns_whatever_strangers_lock(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as stranger, ThreadPoolExecutor(4) as several:
        stranger.execute("SELECT pg_advisory_lock(hashtext('pillarbox accounts'))")
        done = list(several.map(account_schema.install, [empty_database] * 4, ["shop"] * 4, timeout=PATIENCE))
    assert sorted(done) == [(), (), (), ("0001_pre_schema",)]


def test_remove_leaves_no_trace(empty_database: str) -> None:
    account_schema.install(empty_database)
    account_schema.remove(empty_database, "public")
    assert rows(empty_database, _OBJECTS) == []
    with pytest.raises(SchemaMismatch, match="has no accounts in schema public"):
        account_schema.remove(empty_database, "public")


def test_a_schema_of_their_own_comes_and_goes_with_them(empty_database: str) -> None:
    account_schema.install(empty_database, "shop")
    account_schema.install(empty_database, "club")
    rows(empty_database, "INSERT INTO shop.accounts (email, login) VALUES ('a@a.example', 'a')")
    assert account_schema.count(empty_database, "shop") == (1, 1)
    assert account_schema.count(empty_database, "club") == (0, 0)
    account_schema.remove(empty_database, "shop")
    account_schema.check(empty_database, "club")
    assert rows(empty_database, "SELECT nspname FROM pg_namespace WHERE nspname IN ('shop', 'club')") == [("club",)]


def test_tables_that_were_there_before_are_not_touched(empty_database: str) -> None:
    rows(empty_database, "CREATE TABLE accounts (id int)")
    with pytest.raises(PillarboxError, match='relation "accounts" already exists; nothing was changed'):
        account_schema.install(empty_database)
    assert rows(empty_database, "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace") == [
        ("accounts",)
    ]


def test_what_depends_on_accounts_keeps_them(accounts: Accounts) -> None:
    accounts.sql("CREATE VIEW mine AS SELECT login FROM accounts")
    with pytest.raises(PillarboxError, match="view mine depends on table accounts"):
        account_schema.remove(accounts.uri, "public")
    accounts.add()


def test_a_later_migration_upgrades_and_a_newer_database_is_refused(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = account_schema.known()
    later = Migration(2, "post", "0002_post_more", "ALTER TABLE accounts ADD COLUMN more text")
    with monkeypatch.context() as patch:
        patch.setattr(account_schema, "known", lambda: [*known, later])
        assert account_schema.install(accounts.uri) == ("0002_post_more",)
    with pytest.raises(SchemaMismatch, match="newer than this code: it has 0002_post_more"):
        account_schema.check(accounts.uri, "public")


def test_an_application_needs_only_the_rights_it_uses(accounts: Accounts, server: Any) -> None:
    role = f"{psycopg.conninfo.conninfo_to_dict(accounts.uri)['dbname']}_shop"
    with psycopg.connect(server.administrator, autocommit=True) as administrator:
        administrator.execute(f"CREATE ROLE {role} NOLOGIN".encode())
        administrator.execute(f"GRANT {role} TO {accounts.connection.info.user}".encode())
    try:
        accounts.sql(
            f"GRANT INSERT (email, login) ON accounts TO {role}; GRANT USAGE ON SEQUENCE accounts_id_seq TO {role}"
        )
        accounts.sql(f"GRANT EXECUTE ON FUNCTION request_recovery TO {role}")
        with accounts.connection.transaction():
            accounts.sql(f"SET LOCAL ROLE {role}")
            accounts.sql("INSERT INTO accounts (email, login) VALUES ('a@a.example', 'a')")
            accounts.sql("SELECT request_recovery('a@a.example')")
        for forbidden in ("SELECT code FROM tokens", "SELECT consume_token('activation', '')"):
            with accounts.connection.transaction(force_rollback=True):
                accounts.sql(f"SET LOCAL ROLE {role}")
                assert "permission denied" in accounts.refusal(forbidden)
    finally:
        accounts.sql(f"DROP OWNED BY {role}")
        with psycopg.connect(server.administrator, autocommit=True) as administrator:
            administrator.execute(f"DROP ROLE {role}".encode())
    assert accounts.one("SELECT count(*) FROM tokens") == 1
