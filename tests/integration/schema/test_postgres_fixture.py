"""test_postgres_fixture — the databases of tests are real, new, and removed afterwards

Owns: proofs about tests/fixtures/servers/postgres.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.servers.postgres import ServerUnderTest


def test_the_server_is_new_enough_and_durable(server: ServerUnderTest) -> None:
    with psycopg.connect(server.administrator) as connection:
        assert connection.info.server_version // 10000 == server.version >= 15
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_a_copy_has_the_rows_of_its_template_and_is_dropped(server: ServerUnderTest) -> None:
    with server.fresh_database() as first:
        with psycopg.connect(first) as connection:
            connection.execute("CREATE TABLE public.seed AS SELECT 1 AS n")
            template = connection.info.dbname
        with server.fresh_database(template=template) as second, psycopg.connect(second) as connection:
            assert connection.info.dbname != template
            assert connection.execute("SELECT n FROM public.seed").fetchone() == (1,)
    for gone in (first, second):
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            psycopg.connect(gone)


def test_empty_database_has_none_of_our_tables(empty_database: str) -> None:
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'pillarbox'").fetchone() == (0,)


def test_debian15_is_postgresql_15_with_our_settings(debian15: ServerUnderTest) -> None:
    with psycopg.connect(debian15.administrator) as connection:
        assert connection.info.server_version // 10000 == 15
        assert connection.execute("SHOW wal_compression").fetchone() == ("lz4",)
        assert connection.execute("SHOW search_path").fetchone() == ("pillarbox, public",)
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
