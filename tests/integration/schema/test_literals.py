"""test_literals — no function of the schema depends on how a session reads a backslash in a literal

See: PostgreSQL manual, standard_conforming_strings; a function's body is read with the setting of the session that
    calls it, so it writes backslashes in E'…' only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

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
