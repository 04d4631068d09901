"""test_literals — nothing in the schema depends on how a session reads a backslash in a literal

See: PostgreSQL manual, standard_conforming_strings; a function's body is read with the setting of the session that
    calls it, so it writes backslashes in E'…' only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict

from shared.postgres import account_schema
from shared.postgres.migrate import migrate
from tests.fixtures.database.catalog import described
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.servers.postgres import ServerUnderTest

_HARMLESS = re.compile(r"E'(?:[^'\\]|\\.|'')*'|--[^\n]*")


def test_function_bodies_have_no_backslash_in_a_plain_literal(factory: Factory) -> None:
    bodies = factory.sql("SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'pillarbox'::regnamespace")
    assert bodies
    assert {row.proname for row in bodies if "\\" in _HARMLESS.sub("", row.prosrc)} == set()


def test_a_session_that_reads_backslashes_as_escapes_can_queue_mail(factory: Factory) -> None:
    factory.sql("SET standard_conforming_strings = off")
    factory.sql("SET escape_string_warning = off")
    factory.sql(
        """SELECT pillarbox.enqueue('a.b@sender.example', '{"r+1@example.com", "x@[ipv6:::1]"}',
                                    convert_to(E'Subject: x\r\n\r\nbody\r\n', 'UTF8'), metadata => '{"a": 1}')"""
    )
    assert [(row.recipientlocalpart, row.recipientdomain) for row in factory.queue()] == [
        ("r+1", "example.com"),
        ("x", "[ipv6:::1]"),
    ]


def test_a_database_that_reads_backslashes_as_escapes_gets_the_same_schema(server: ServerUnderTest) -> None:
    with server.fresh_database() as ours, server.fresh_database() as theirs:
        with psycopg.connect(theirs, autocommit=True) as session:
            name = conninfo_to_dict(theirs)["dbname"]
            session.execute(f'ALTER DATABASE "{name}" SET standard_conforming_strings = off'.encode())
        for uri in (ours, theirs):
            migrate(uri, LEAVES)
            account_schema.install(uri)
        assert described(theirs) == described(ours)
