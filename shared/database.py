"""database — the door to PostgreSQL

Owns: turning `environment.database.uri` into connections and pools, and PostgreSQL's errors into ours.
Called by: everything that runs a query; only this file, shared.spool, shared.wakeup and shared.migrate import psycopg.
Guarantees: every connection is in autocommit (no transaction is ever open by accident, least of all across SMTP), names
    itself in pg_stat_activity, and notices a dead peer by keepalives. A pool gives no connection it has not checked.
Raises: DatabaseUnavailable, in one line without the password.
See: PostgreSQL manual, "Database Connection Control Functions".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow, namedtuple_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from shared import embedded
from shared.errors import ConfigError, DatabaseUnavailable
from shared.queries import query, where_query

if TYPE_CHECKING:
    from pathlib import Path

type Connection = psycopg.AsyncConnection[TupleRow]
#: One row of an answer: a named tuple whose fields are the query's columns.
type Row = Any
type Pool = AsyncConnectionPool[Connection]

#: What a query can raise that says nothing about the query: the server or the way to it is in trouble.
OUTAGE: Final = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, PoolClosed, OSError)
#: PostgreSQL's refusal of what we asked: the next try fails the same way unless something changes.
REFUSAL: Final = (psycopg.Error,)
#: There is no day partition for a row of history.
NO_PARTITION: Final = psycopg.errors.CheckViolation

_MINIMUM_VERSION: Final = 150000
# A peer that vanished without a word is noticed after about 20 s, far below a lease.
_KEEPALIVE: Final = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 2, "tcp_user_timeout": 20000}


def resolve(uri: str, var: Path) -> str:
    """A libpq connection string for `environment.database.uri`; `embedded:` starts the server under `var`."""
    if uri.strip() == "embedded:":
        return embedded.ensure_running(var)
    try:
        conninfo_to_dict(uri)
    except psycopg.ProgrammingError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"environment.database.uri: {reason}; allowed: `embedded:` or a libpq URI to PostgreSQL 15 or newer"
        ) from None
    return uri


async def connect(conninfo: str, application_name: str) -> Connection:
    """One connection in autocommit; DatabaseUnavailable when there is none to be had."""
    try:
        connection = await psycopg.AsyncConnection.connect(
            make_conninfo(conninfo, **_settings(conninfo, application_name)), autocommit=True
        )
    except psycopg.OperationalError as error:
        raise unavailable(error) from None
    version = connection.info.server_version
    if version < _MINIMUM_VERSION:
        await connection.close()
        raise DatabaseUnavailable(f"PostgreSQL {version // 10000} is too old: Pillarbox needs 15 or newer")
    return connection


async def open_pool(conninfo: str, application_name: str, size: int) -> Pool:
    """A pool of `size` connections that reconnects by itself; its first connection is proven before it is returned."""
    await (await connect(conninfo, application_name)).close()
    pool: Pool = AsyncConnectionPool(
        make_conninfo(conninfo, **_settings(conninfo, application_name)),
        connection_class=psycopg.AsyncConnection[TupleRow],
        kwargs={"autocommit": True},
        min_size=1,
        max_size=size,
        timeout=10,
        reconnect_timeout=5,
        check=AsyncConnectionPool.check_connection,
        open=False,
    )
    await pool.open()
    return pool


async def fetch(source: Connection, name: str, /, where: str | None = None, **values: Any) -> list[Row]:
    """Run sql/queries/<name>.sql and return its rows as named tuples; values are whatever psycopg adapts."""
    text = query(name) if where is None else where_query(name, where)
    async with source.cursor(row_factory=namedtuple_row) as cursor:
        # Without parameters the driver leaves %% as it is, and a condition has its percent signs doubled.
        await cursor.execute(text, values if where is not None else values or None)
        return await cursor.fetchall() if cursor.description else []


def unavailable(error: BaseException) -> DatabaseUnavailable:
    """The one line an operator reads when PostgreSQL cannot be reached; libpq's messages carry no password."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return DatabaseUnavailable(f"PostgreSQL is unavailable: {reason}")


def _settings(conninfo: str, application_name: str) -> dict[str, Any]:
    """Our defaults for what the connection string leaves open."""
    given = conninfo_to_dict(conninfo)
    defaults: dict[str, Any] = {"application_name": application_name, "connect_timeout": 10, **_KEEPALIVE}
    return {name: value for name, value in defaults.items() if name not in given}
