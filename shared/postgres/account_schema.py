"""account-schema — puts the accounts' tables, triggers and functions into a database, and takes them away

Owns: applying sql/accounts: its schema as one first migration, then its migrations, in order, once each, into a schema
    of the caller's choice.
Guarantees: idempotent; each migration is one transaction, and concurrent runs take turns. Nothing that was there before
    is changed: a table or type of the same name is an error before anything is made. `remove` drops only what an
    installation made, and refuses where other objects depend on it. Locks that are not free within seconds are an
    error, so that no application waits behind us.
Raises: PillarboxError, SchemaMismatch, DatabaseUnavailable.
See: sql/accounts/README.md; shared/postgres/migrate.py.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Final

import psycopg

from shared.errors import PillarboxError, SchemaMismatch
from shared.postgres import database, migrate
from shared.postgres.queries import filled_query, query

if TYPE_CHECKING:
    from collections.abc import Mapping

#: mailroom has its tables in the schema that every session searches.
DEFAULT: Final = "public"
NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_LOCK_TIMEOUT: Final = "2000"  # milliseconds


def known() -> list[migrate.Migration]:
    """The migrations this code brings, in order."""
    return migrate.steps_in(files("sql") / "accounts")


def install(conninfo: str, schema: str = DEFAULT) -> tuple[str, ...]:
    """Apply what is missing; the names of the migrations that were applied."""
    done = []
    with migrate.connected(conninfo) as connection:
        for step in known():
            first = not _present(connection, schema)
            try:
                made = _apply(connection, schema, step)
            except (PillarboxError, *migrate.MADE_MEANWHILE):
                if not (first and _present(connection, schema)):
                    raise  # it is not another run that made what the first migration makes
                made = _apply(connection, schema, step)
            if made:
                done.append(step.name)
    return tuple(done)


def _apply(connection: psycopg.Connection, schema: str, step: migrate.Migration) -> bool:
    """False when it was applied before, perhaps by another run."""
    with connection.transaction():
        _begin(connection, schema)
        applied = _applied(connection, schema)
        migrate.refuse_newer(applied, known())
        if step.number in applied:
            return False
        if not connection.execute(query("accounts_schema_present"), {"schema": schema}).fetchone():
            connection.execute(filled_query("accounts_schema_make", schema=quoted(schema)))
        _run(connection, step.sql, f"accounts cannot be installed in schema {schema}")
        connection.execute(
            filled_query("accounts_record", schema=quoted(schema)), {"number": step.number, "name": step.name}
        )
        return True


def count(conninfo: str, schema: str) -> tuple[int, int]:
    """How many accounts and tokens an installation has; SchemaMismatch where there is none."""
    with migrate.connected(conninfo) as connection:
        _refuse_absent(connection, schema)
        row = connection.execute(filled_query("accounts_count", schema=quoted(schema))).fetchone()
        return row if row is not None else (0, 0)


def remove(conninfo: str, schema: str) -> None:
    """Drop an installation with all its accounts; and its schema, if that is empty then and not `public`."""
    with migrate.connected(conninfo) as connection, connection.transaction():
        _begin(connection, schema)
        _refuse_absent(connection, schema)
        removal = (files("sql") / "accounts" / "remove.sql").read_text(encoding="utf-8")
        _run(connection, removal, f"the accounts in schema {schema} cannot be removed")
        row = connection.execute(query("accounts_schema_empty"), {"schema": schema}).fetchone()
        if schema != DEFAULT and row is not None and row[0]:
            connection.execute(filled_query("accounts_schema_drop", schema=quoted(schema)))


def check(conninfo: str, schema: str) -> None:
    """Refuse to start where accounts are missing, older or newer than this code."""
    with migrate.connected(conninfo) as connection:
        _refuse_absent(connection, schema)
        applied = _applied(connection, schema)
        migrate.refuse_newer(applied, known())
        if absent := [each.name for each in known() if each.phase == migrate.PRE and each.number not in applied]:
            raise SchemaMismatch(
                f"the accounts in schema {schema} are older than this code: {', '.join(absent)} missing; "
                "run `pillarbox accounts install`"
            )


def quoted(schema: str) -> str:
    """A checked name of a schema as SQL has it."""
    assert NAME.fullmatch(schema)  # noqa: S101 - the configuration and the command line refuse others
    return f'"{schema}"'


def _begin(connection: psycopg.Connection, schema: str) -> None:
    connection.execute(filled_query("lock_timeout", milliseconds=_LOCK_TIMEOUT))
    connection.execute(query("migrate_literals"))
    if _present(connection, schema):
        turn = filled_query("accounts_turn", schema=quoted(schema))
        _run(connection, turn, f"the accounts in schema {schema} cannot be changed")
    connection.execute(query("accounts_path"), {"path": f"{quoted(schema)}, pg_temp"})


def _refuse_absent(connection: psycopg.Connection, schema: str) -> None:
    if not _present(connection, schema):
        raise SchemaMismatch(
            f'database "{connection.info.dbname}" has no accounts in schema {schema}; run `pillarbox accounts install`'
            " there, or name their schema"
        )


def _present(connection: psycopg.Connection, schema: str) -> bool:
    table = f"{quoted(schema)}.account_migrations"
    return connection.execute(query("accounts_present"), {"table": table}).fetchone() is not None


def _applied(connection: psycopg.Connection, schema: str) -> Mapping[int, str]:
    if not _present(connection, schema):
        return {}
    return dict(connection.execute(filled_query("accounts_applied", schema=quoted(schema))).fetchall())


def _run(connection: psycopg.Connection, sql: str, what: str) -> None:
    try:
        connection.execute(sql.encode())
    except (
        psycopg.errors.DuplicateTable,
        psycopg.errors.DuplicateObject,
        psycopg.errors.DuplicateFunction,
        psycopg.errors.DependentObjectsStillExist,
        database.LOCKED,
    ) as error:
        hint = error.diag.message_hint if isinstance(error, database.LOCKED) else error.diag.message_detail
        detail = f" ({' '.join(hint.split())})" if hint else ""
        raise PillarboxError(f"{what}: {error.diag.message_primary}{detail}; nothing was changed") from None
