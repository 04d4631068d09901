"""test_odd_names — the queue works for an owner and a database with any names, whatever is first in the search_path

See: tests/fixtures/servers/owner.py, for the plain names of all other tests; sql/README.md, "Migrations beside mail".
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from queued.maintain import Maintainer
from scripts import cli
from shared.config.queued.settings import Maintenance
from shared.postgres import database
from shared.postgres.migrate import migrate
from tests.fixtures.database.results import DELIVERED, claim, finished, running_recorder
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ODD: Final = """Mail "Ops" 'x' %s"""
_SHADOWS: Final = """
    CREATE SCHEMA "Evil, first";
    CREATE TABLE "Evil, first".queue (id text);
    CREATE TABLE "Evil, first".messages (id text);
    CREATE TABLE "Evil, first".locks (name text);
    CREATE FUNCTION "Evil, first".notice_copy(bigint) RETURNS text LANGUAGE sql AS $$ SELECT 'shadow' $$;
    CREATE FUNCTION "Evil, first".partition_id(text) RETURNS text LANGUAGE sql AS $$ SELECT 'shadow' $$;
    GRANT ALL ON SCHEMA "Evil, first" TO PUBLIC;
"""


@pytest.fixture
def odd(administrator: str) -> Iterator[str]:
    """The conninfo of an owner and a database with odd names."""
    name = sql.Identifier(ODD)
    more = {"password": password} if (password := conninfo_to_dict(administrator).get("password")) else {}
    with psycopg.connect(administrator, autocommit=True) as server:
        server.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEROLE").format(name))
        if more:
            server.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(name, sql.Literal(password)))
        server.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(name, name))
        server.execute(sql.SQL('ALTER ROLE {} SET search_path = "Evil, first", public').format(name))
        try:
            with psycopg.connect(make_conninfo(administrator, dbname=ODD), autocommit=True) as within:
                within.execute(_SHADOWS)
            yield make_conninfo(administrator, user=ODD, dbname=ODD, **more)
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
            server.execute(sql.SQL("DROP ROLE {}").format(name))


async def test_an_owner_and_a_database_with_any_names(
    odd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    migrate(odd, LEAVES)
    migrate(odd, LEAVES)  # finds it done
    with psycopg.connect(odd, autocommit=True) as owner:
        for domain in ("one.example", 'x"{y}.example', "hold"):
            owner.execute("SELECT pillarbox.enqueue('a@a.example', ARRAY['b@b.example'], 'Subject: x')")
            owner.execute(
                "UPDATE pillarbox.queue SET recipientdomain = %s WHERE recipientdomain = 'b.example'", [domain]
            )
    [first, *_] = await claim(odd, 1)
    async with running_recorder(odd) as recorder:
        recorder.add([finished(first, DELIVERED, "success")])
        await recorder.drained()
    connection = await database.connect(odd, "maintenance")
    try:
        assert await Maintainer("w", Maintenance()).round_if_elected(connection)
    finally:
        await connection.close()
    for name, more in (("smtpd", {}), ("queued", {"workers": [{"id": "w", "where": "true"}]})):
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"environment": {"database": {"uri": odd}}, **more}))
    capsys.readouterr()
    top = ["queue", "top", "--times", "1", "--json", "--config", str(tmp_path)]
    assert await asyncio.to_thread(cli.main, top) == 0
    assert sorted(json.loads(capsys.readouterr().out)["destinations"]) == sorted(
        {'x"{y}.example', "hold", "one.example"} - {first.recipient.domain}
    )
