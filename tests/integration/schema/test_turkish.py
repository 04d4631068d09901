"""test_turkish — a database whose language has its own lower case compares ASCII as every other one does

Owns: proofs in a database of a Turkish locale, where PostgreSQL lowers I to U+0131, a letter without a dot. They need a
    server with ICU, or with the C library's tr_TR.
See: sql/schema/01_setting.sql, `lowered`; Unicode Standard section 5.18.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from shared.postgres.migrate import migrate
from tests.fixtures.database.factory import Factory
from tests.fixtures.database.operating import Pillarbox, write_config
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.servers.postgres import ServerUnderTest

LOCALES = ("LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR' LOCALE 'C.UTF-8'", "LOCALE_PROVIDER libc LOCALE 'tr_TR.UTF-8'")


@pytest.fixture
def turkish(server: ServerUnderTest) -> Iterator[Factory]:
    """Rows in a database of a Turkish locale."""
    for locale in LOCALES:
        try:
            name = server.create_database(template="template0", options=locale)
        except psycopg.Error:
            continue
        uri = server.uri_of(name)
        try:
            migrate(uri, LEAVES)
            with psycopg.connect(uri, autocommit=True, row_factory=namedtuple_row) as connection:
                yield Factory(uri, connection)
        finally:
            server.drop_database(name)
        return
    pytest.skip("this PostgreSQL has no Turkish locale: neither ICU nor the C library's tr_TR.UTF-8")


@pytest.fixture
def pillarbox(turkish: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pillarbox:
    """`pillarbox queue` on that database."""
    return Pillarbox(write_config(tmp_path / "config", turkish.uri), capsys, "queue")


def test_ascii_is_lowered_as_in_any_other_locale(turkish: Factory) -> None:
    assert turkish.one("SELECT lower('INFO')") == "\u0131nfo"
    assert turkish.one("SELECT pillarbox.lowered('INFO.Böl@X É')") == "info.böl@x é"


def test_a_state_and_a_text_are_found_as_written(turkish: Factory, pillarbox: Pillarbox) -> None:
    waiting = turkish.row()
    turkish.sql("UPDATE pillarbox.queue SET last_error = '451 INVALID'")
    now = pillarbox.lines("trace", str(waiting))[-1]
    assert now["event"] == "active"
    assert [row["id"] for row in pillarbox.lines("list", "last_error~invalid")] == [waiting]
    assert [row["id"] for row in pillarbox.lines("list", "last_error~\u0131nvalid")] == []


def test_the_charset_of_an_encoded_word_is_known_in_capitals(turkish: Factory) -> None:
    assert turkish.one("SELECT pillarbox.header_subject('=?ISO-8859-1?Q?Gr=FC=DFe?=')") == "Grüße"


def test_an_address_in_capitals_is_blocked_reported_erased_and_suspended(turkish: Factory) -> None:
    turkish.sql("INSERT INTO pillarbox.blocked_senders (target, reason) VALUES ('info@x.example', 'test')")
    assert turkish.one("SELECT pillarbox.sender_blocked('INFO@x.example')")
    assert turkish.one("SELECT pillarbox.erasure_fits('INFO', 'x.example', 'info', '{x.example}')")
    assert turkish.one("""SELECT pillarbox.suspend_fits('["INFO.example"]', 'info.example')""")
    sent = turkish.message()
    turkish.rows(1, message=sent)
    turkish.sql("UPDATE pillarbox.queue SET recipientlocalpart = 'INFO', recipientdomain = 'x.example'")
    known = "SELECT pillarbox.report_known(ARRAY[%(sent)s]::uuid[], '{info,other}', '{x.example,x.example}')"
    assert turkish.one(known, sent=sent) == [1]
