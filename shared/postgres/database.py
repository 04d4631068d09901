"""database — the door to PostgreSQL

Owns: turning `environment.database.uri` into connections and pools, and PostgreSQL's errors into ours.
Guarantees: every connection is in autocommit (no transaction is ever open by accident, least of all across SMTP), names
    itself in pg_stat_activity, and notices a dead peer by keepalives. A pool checks every connection before it hands
    it out. Of several hosts the one that accepts writes is used, so that a promoted standby is found. Behind a pooler
    no statement is prepared.
Raises: DatabaseUnavailable, in one line without the password.
See: PostgreSQL manual, "Database Connection Control Functions".
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from select import POLLIN, poll
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PipelineStatus
from psycopg.rows import TupleRow, namedtuple_row
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from shared.errors import ConfigError, DatabaseUnavailable, in_words
from shared.observe import events
from shared.postgres import json_values
from shared.postgres.embedded import embedded
from shared.postgres.queries import filled_query, numbered, query, where_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import LiteralString

type Connection = psycopg.AsyncConnection[TupleRow]
#: One row of an answer: a named tuple whose fields are the query's columns.
type Row = Any
type Pool = AsyncConnectionPool[Connection]

#: Errors of a query that say nothing about the query: the server or the connection to it is in trouble.
OUTAGE: Final = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, PoolClosed, OSError)
#: PostgreSQL's refusal of what we asked: the next try fails the same way unless something changes.
REFUSAL: Final = (psycopg.Error,)
#: Classes of SQLSTATE in which a value is refused: by a type, a constraint, a function or trigger in any language (38,
#: 39, P0), a view's check (44) or a limit (54: too long for an index, too deep for the stack).
_OF_VALUES: Final = frozenset({"22", "23", "38", "39", "44", "54", "P0"})
_OF_STATE: Final = "55000"  # raised by a trigger that does not accept the state of things
_OF_CONNECTIONS: Final = "08"  # a class of SQLSTATE
#: admin_shutdown, crash_shutdown, cannot_connect_now, too_many_connections.
_SHUT: Final = frozenset({"57P01", "57P02", "57P03", "53300"})
#: Another transaction moved or locked the same row first (SQLSTATE 40001, 40P01): nothing is wrong, try again at once.
CONFLICT: Final = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
#: Another session keeps a row locked for longer than we wait (SQLSTATE 55P03).
LOCKED: Final = psycopg.errors.LockNotAvailable
#: PostgreSQL ended the statement, mostly because it took longer than it was given (SQLSTATE 57014).
CANCELLED: Final = psycopg.errors.QueryCanceled
#: There is no day partition for a row of history.
NO_PARTITION: Final = psycopg.errors.CheckViolation
#: A partition that was replaced or dropped between planning and running (SQLSTATE 42P01, or XX000, "could not open
#: relation"): nothing is wrong, and the next plan knows no more of it.
VANISHED: Final = (psycopg.errors.UndefinedTable, psycopg.errors.InternalError_)

_LONG: Final = 4096  # characters of a query, beyond which psycopg does not remember what it has read
_MINIMUM_VERSION: Final = 150000
_ENCODING: Final = "UTF8"  # addresses may be international (RFC 6531), and another encoding would refuse or alter them
_SEND_BUFFER: Final = 1 << 21
# A peer that vanished without a word is noticed after about 20 s, far below a lease.
_KEEPALIVE: Final = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 2, "tcp_user_timeout": 20000}

set_json_loads(json_values.read)  # on every connection made from here on


def resolve(uri: str, var: Path, key: str = "environment.database.uri") -> str:
    """A libpq connection string for the value of `key`; `embedded:` starts the server under `var`."""
    if is_embedded(uri):
        return embedded.ensure_running(var)
    try:
        conninfo_to_dict(uri)
    except psycopg.ProgrammingError as error:
        raise ConfigError(
            f"{key}: {in_words(error)}; allowed: `embedded:` or a libpq URI to PostgreSQL 15 or newer"
        ) from None
    return uri


def resolve_running(uri: str, var: Path, key: str = "environment.database.uri") -> str | None:
    """As `resolve`, but nothing is started: None for an embedded server that does not run."""
    return None if is_embedded(uri) and embedded.status(var) is None else resolve(uri, var, key)


def is_embedded(uri: str) -> bool:
    """Whether the server is ours, under `var`."""
    return uri.strip() == "embedded:"


def volumes(uri: str, var: Path) -> list[Path]:
    """Where the server keeps its files, if it is ours; of another that is not known here."""
    return embedded.volumes(var) if is_embedded(uri) else []


@contextmanager
def outage_in_one_line(connection: psycopg.Connection[Any] | Connection) -> Iterator[None]:
    """Errors that end the connection in this block become DatabaseUnavailable; other errors stay as they are."""
    try:
        yield
    except OUTAGE as error:
        if not connection.closed:
            raise
        raise unavailable(error) from None


async def connect(
    conninfo: str, application_name: str, kind: type[psycopg.AsyncConnection[TupleRow]] = psycopg.AsyncConnection
) -> Connection:
    """One connection in autocommit; DatabaseUnavailable when there is none to be had."""
    try:
        connection = await kind.connect(complete(conninfo, application_name), autocommit=True)
        try:
            refuse_unusable(connection.info)
            await _mind_pooler(connection)
        except BaseException:
            await connection.close()
            raise
    except psycopg.OperationalError as error:
        raise unavailable(error) from None
    events.answered()
    return connection


def refuse_unusable(info: psycopg.ConnectionInfo) -> None:
    """DatabaseUnavailable for a server or a database that Pillarbox cannot work with."""
    if why := unusable(info.server_version, info.parameter_status("server_encoding"), info.dbname):
        raise DatabaseUnavailable(why)


def unusable(version: int, encoding: str | None, name: str) -> str | None:
    """Why a server of this version (server_version_num) and a database of this encoding and name cannot be used."""
    if version < _MINIMUM_VERSION:
        return f"PostgreSQL {version // 10000} is too old; allowed: PostgreSQL {_MINIMUM_VERSION // 10000} or newer"
    if encoding != _ENCODING:  # it cannot keep every address as it came
        return (
            f'database "{name}" has the encoding {encoding}, and Pillarbox needs {_ENCODING}: use one made by '
            f"CREATE DATABASE … ENCODING '{_ENCODING}' TEMPLATE template0"
        )
    return None


@contextmanager
def rights_in_one_line(info: psycopg.ConnectionInfo) -> Iterator[None]:
    """A right that this login lacks in this block becomes DatabaseUnavailable; other errors stay as they are."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise without_right(info, reason(error)) from None


def without_right(info: psycopg.ConnectionInfo, what: str) -> DatabaseUnavailable:
    """The line about a right that this login lacks."""
    return DatabaseUnavailable(
        f'{what}, as role "{info.user}" in database "{info.dbname}"; allowed: the owner of the schema, or a role with '
        "the rights of docs/how-to/rights/grant-roles.md"
    )


async def twin(connection: Connection, application_name: str) -> Connection:
    """Another connection to the same server, with the same login."""
    known = {option.keyword.decode(): option.val.decode() for option in connection.pgconn.info if option.val}
    known.pop("hostaddr", None)  # of several servers, the one that was found
    known |= {"host": connection.info.host, "port": str(connection.info.port), "application_name": application_name}
    return await connect(make_conninfo("", **known), application_name)


def widen(connection: Connection) -> None:
    """Let the kernel take much at once for the server: one who sends whole messages has to wait for it less often.

    Only over a Unix socket, whose buffer stays as it is set, within net.core.wmem_max: TCP's grows by itself.
    """
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        if end.family == socket.AF_UNIX:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)


async def open_pool(
    conninfo: str,
    application_name: str,
    size: int,
    kind: type[psycopg.AsyncConnection[TupleRow]] = psycopg.AsyncConnection,
    *,
    in_order: bool = False,
) -> Pool:
    """A pool of `size` connections that reconnects by itself; its first connection is proven before it is returned.

    in_order: what is asked reads few rows of many in the order of an index (connection_walk_in_order).
    """
    await (await connect(conninfo, application_name)).close()
    pool: Pool = AsyncConnectionPool(
        complete(conninfo, application_name),
        connection_class=kind,
        kwargs={"autocommit": True},
        min_size=1,
        max_size=size,
        timeout=10,
        reconnect_timeout=5,
        check=_look,
        configure=partial(_configure, in_order=in_order),
        open=False,
    )
    await pool.open()
    return pool


async def fetch(source: Connection, name: str, /, where: str | None = None, **values: Any) -> list[Row]:
    """Run the query `name` and return its rows as named tuples; values are whatever psycopg adapts.

    Not in psycopg's pipeline mode, where statements outside a transaction share one until the pipeline ends, and where
    the answer of one may be read while others are only sent: there it is refused (RuntimeError).
    """
    text = query(name) if where is None else where_query(name, where)
    # Without parameters the driver leaves %% as it is, and a condition has its percent signs doubled.
    return await _fetch(source, text, values if where is not None else values or None)


async def fetch_where(
    source: Connection, name: str, where: str, parts: Mapping[str, str], /, *, keep: bool = False, **values: Any
) -> list[Row]:
    """As `fetch` with a condition, and with other parts (shared.postgres.queries.where_query); `keep`: fetch_filled."""
    return await _fetch(source, where_query(name, where, **parts), values, prepare=_prepare(source, keep=keep))


async def fetch_octets(source: Connection, name: str, /, **values: Any) -> list[Row]:
    """As `fetch`, in the binary format: as text a bytea has two octets for each one, which both sides pay for."""
    return await _fetch(source, query(name), values, octets=True)


async def fetch_filled(
    source: Connection,
    name: str,
    parts: Mapping[str, str],
    /,
    *,
    keep: bool = False,
    octets: bool = False,
    **values: Any,
) -> list[Row]:
    """Run the query `name` with these parts in it (shared.postgres.queries.filled_query); rows as named tuples.

    `keep`: the same text comes again, and planning it costs more than running it: have it prepared from the first time.
    `octets`: in the binary format, as `fetch_octets`.
    """
    return await _fetch(source, filled_query(name, **parts), values, prepare=_prepare(source, keep=keep), octets=octets)


def _prepare(source: Connection, *, keep: bool) -> bool | None:
    """What the driver is asked: None leaves it to the number of times that a text came."""
    return True if keep and not is_pooled(source) else None


async def _fetch(
    source: Connection,
    text: LiteralString,
    values: Mapping[str, Any] | None,
    *,
    prepare: bool | None = None,
    octets: bool = False,
) -> list[Row]:
    """The driver reads a long text again at each call, which takes longer than to number its parameters once."""
    _refuse_pipeline(source)
    if values and len(text) > _LONG:
        numbered_text, names = numbered(text)
        async with psycopg.AsyncRawCursor(source, row_factory=_named) as raw:
            await raw.execute(numbered_text, [values[name] for name in names], prepare=prepare, binary=octets)
            return await raw.fetchall() if _has_rows(raw) else []
    async with source.cursor(row_factory=_named) as cursor:
        await cursor.execute(text, values, prepare=prepare, binary=octets)
        return await cursor.fetchall() if _has_rows(cursor) else []


def _has_rows(cursor: psycopg.AsyncCursor[Any]) -> bool:
    """Whether the statement returns rows, perhaps none. `description` says so too, but describes each column first."""
    return cursor.rownumber is not None


def _named(cursor: psycopg.AsyncCursor[Any]) -> Callable[[Sequence[Any]], Row]:
    """Rows as named tuples. A query of ours with two columns of one name is our fault, and refuses no value."""
    try:
        return namedtuple_row(cursor)
    except psycopg.DataError as error:
        raise TypeError(str(error)) from error


def _refuse_pipeline(source: Connection) -> None:
    if source.pgconn.pipeline_status != PipelineStatus.OFF:
        raise RuntimeError("a query by name was run in pipeline mode; allowed: after the pipeline")


async def run_on(connection: Connection, name: str, table: str) -> None:
    """Run the query `name` with this table's name in place of {table}."""
    await connection.execute(sql.SQL(query(name)).format(table=sql.Identifier(table)))


def refuses_value(error: BaseException) -> bool:
    """Whether PostgreSQL, or the driver before it, refuses a value: the next try with it fails the same way."""
    state = getattr(error, "sqlstate", None) or ""
    known = isinstance(error, (psycopg.DataError, psycopg.IntegrityError, UnicodeError))
    return known or state[:2] in _OF_VALUES or state == _OF_STATE


def is_used_key(error: BaseException) -> bool:
    """Whether `enqueue` has had this key of idempotency for another message."""
    return isinstance(error, psycopg.errors.UniqueViolation)


def is_outage(error: BaseException) -> bool:
    """Whether the server or the way to it is in trouble. A value that it does not take says nothing of that."""
    return isinstance(error, OUTAGE) and not refuses_value(error)


def is_away(error: BaseException) -> bool:
    """Whether the server, or the way to it, does not answer at all; what it refuses or cancels is an answer."""
    if isinstance(error, psycopg.OperationalError) and not isinstance(error, (PoolTimeout, PoolClosed)):
        return error.sqlstate is None or error.sqlstate[:2] == _OF_CONNECTIONS or error.sqlstate in _SHUT
    return isinstance(error, (DatabaseUnavailable, PoolTimeout, psycopg.InterfaceError, OSError))


def unavailable(error: BaseException) -> DatabaseUnavailable:
    """The one line an operator reads when PostgreSQL cannot be reached; libpq's messages carry no password."""
    if isinstance(error, DatabaseUnavailable):
        return error
    return DatabaseUnavailable(f"PostgreSQL is unavailable: {in_words(error)}")


def reason(error: BaseException) -> str:
    """The reason that PostgreSQL or another part gave, in one line without the place in our functions."""
    said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join(said.split()) if said else in_words(error)


def complete(conninfo: str, application_name: str) -> str:
    """The connection string with our defaults for what it leaves open."""
    given = conninfo_to_dict(conninfo)
    defaults: dict[str, Any] = {"application_name": application_name, "connect_timeout": 10, **_KEEPALIVE}
    if any("," in str(given.get(name) or "") for name in ("host", "hostaddr")):
        # Of a primary and its standbys only one can take mail, and which one it is may change.
        defaults["target_session_attrs"] = "read-write"
    asked = {name: value for name, value in defaults.items() if name not in given}
    return make_conninfo(conninfo, **asked, client_encoding=_ENCODING)  # whatever PGCLIENTENCODING or the role says


def with_default(conninfo: str, name: str, value: str) -> str:
    """The connection string of sessions that begin with this value of a setting of PostgreSQL."""
    given = str(conninfo_to_dict(conninfo).get("options") or "")
    return make_conninfo(conninfo, options=f"{given} -c {name}={value}".strip())


def without_password(conninfo: str) -> tuple[str, str | None]:
    """The connection string without its password, and the password."""
    given = conninfo_to_dict(conninfo)
    password = given.pop("password", None)
    return make_conninfo("", **given), None if password is None else str(password)


def is_pooled(connection: Connection) -> bool:
    """Whether a pooler such as PgBouncer stands between: a session's state may then not last from query to query."""
    return connection.prepare_threshold is None


def is_on_this_host(connection: Connection) -> bool:
    """Whether the server is reached by a Unix socket or a loopback address."""
    host = connection.info.host
    return host.startswith(("/", "@")) or ip_address(connection.info.hostaddr or host).is_loopback


def is_usable(connection: Connection) -> bool:
    """Whether nothing speaks against using this connection again, as far as is known without a query."""
    return not connection.closed and _is_quiet(connection)


def _is_quiet(connection: Connection) -> bool:
    """Whether the server has said nothing unasked: what it says to an idle connection is mostly that it ends it."""
    waiting = poll()
    waiting.register(connection.fileno(), POLLIN)
    return not waiting.poll(0)


def hang_up(connection: Connection) -> None:
    """End the conversation at once, whatever is waited for: who waits gets an OperationalError.

    Closing the connection would leave the event loop with a file number that may belong to another a moment later.
    """
    if not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)


async def _configure(connection: Connection, *, in_order: bool) -> None:
    """The settings that every connection of a pool gets once."""
    await _mind_pooler(connection)
    await keep_plans(connection)
    if not is_pooled(connection):
        await fetch(connection, "connection_patience")
        if in_order:
            await fetch(connection, "connection_walk_in_order")
    events.answered()


async def keep_plans(connection: Connection) -> None:
    """Plan each statement once, by indexes, whatever its values; behind a pooler each is planned as it comes."""
    if not is_pooled(connection):
        await fetch(connection, "connection_walk")


async def _look(connection: Connection) -> None:
    """Ask the server only if it has said something unasked, which mostly is that it ends the connection; or if it was
    away, so that its answer ends the outage.

    One that vanished without a word is found by the keepalives, here as in the middle of a query.
    """
    if events.is_away() or not _is_quiet(connection):
        await AsyncConnectionPool.check_connection(connection)
        events.answered()


async def _mind_pooler(connection: Connection) -> None:
    """Prepare nothing where the next query may reach another backend, which does not know it.

    A pooler makes up the backend id it gives its clients at login, so the server's own answer differs. Without one, the
    session gets the settings that our statements are made for, whatever those of the database and of the role are.
    """
    [row] = await fetch(connection, "connection_backend", announced=connection.info.backend_pid)
    if row.pid != connection.info.backend_pid:
        connection.prepare_threshold = None
