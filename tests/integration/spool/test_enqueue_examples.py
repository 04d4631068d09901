"""test_enqueue_examples — an order and its mail are committed together or not at all, with four libraries

Owns: runs of the programs in docs/examples/transaction (psycopg, SQLAlchemy, Django, node-postgres), as an
    application's login.
See: docs/how-to/send/enqueue-from-sql.md.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

import pytest
from psycopg.conninfo import conninfo_to_dict

import tests.fixtures.peers.web
from tests.fixtures.database.logins import name_of
from tests.fixtures.peers.web.npm import installed
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

NODE: Final = Path(tests.fixtures.peers.web.__path__[0]) / "node_postgres" / "package.json"
EXAMPLES: Final = Path(__file__).parents[3] / "docs" / "examples" / "transaction"
SAID: Final = """order 1 is confirmed
no order: not an address: "not an address"
no order: the card was declined
"""
VARIABLES: Final = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
}


@pytest.mark.parametrize("library", ["psycopg", "sqlalchemy", "django", "node"])
async def test_the_order_and_its_mail_are_committed_together_or_not_at_all(
    factory: Factory, logins: Logins, library: str
) -> None:
    uri = logins.uri("application")
    factory.sql("CREATE TABLE public.orders (id bigserial PRIMARY KEY, customer text NOT NULL)")
    factory.sql(f"GRANT ALL ON public.orders, public.orders_id_seq TO {name_of(uri)}")
    assert await ran(library, uri) == SAID
    assert [tuple(row) for row in factory.sql("SELECT id, customer FROM public.orders")] == [(1, "ann@example.net")]
    [row] = factory.queue()
    assert (row.senderlocalpart, row.recipientlocalpart, row.saslusername) == ("shop", "ann", name_of(uri))
    [body] = factory.bodies().values()
    assert b"Subject: Your order 1\r\n" in body.content
    assert factory.one("SELECT key FROM pillarbox.idempotency") == "order-1"


async def ran(library: str, uri: str) -> str:
    """Run an example; what it prints."""
    given = {name: str(value) for name, value in conninfo_to_dict(uri).items()}
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    program = [sys.executable, str(EXAMPLES / f"with_{library}.py")]
    if library == "psycopg":
        program.append(uri)
    elif library == "sqlalchemy":
        login = f"{quote(given['user'])}:{quote(given['password'])}"
        rest: dict[str, str] = {name: given[name] for name in ("host", "port") if name in given}
        program.append(f"postgresql+psycopg://{login}@/{given['dbname']}?{urlencode(rest)}")
    else:
        environment |= {VARIABLES[name]: value for name, value in given.items() if name in VARIABLES}
    if library == "node":
        folder = await asyncio.to_thread(installed, NODE, "pg", "node-postgres")
        program = ["node", str(EXAMPLES / "with_node.cjs")]
        environment |= {"NODE_PATH": str(folder / "node_modules")}
    process = await asyncio.create_subprocess_exec(
        *program,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complaints = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, complaints.decode()
    return said.decode()
