"""copying — rows of history through COPY, in one short transaction each

Owns: the synchronous connections of the analytics, and COPY in both directions as CSV.
Guarantees: a connection is in autocommit, names itself `pillarbox analytics`, and reads are read-only, with a statement
    timeout, in a transaction that lives no longer than the statement. Any of several hosts will do to read from.
Raises: DatabaseUnavailable in one line without the password; PartitionDropped when a day went while it was read.
See: PostgreSQL manual, COPY and "TID Range Scan" (CREATE TABLE, ctid).
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.rows import namedtuple_row

from shared.errors import PillarboxError
from shared.postgres import database
from shared.postgres.queries import query

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from scripts.analytics.source.columns import History
    from scripts.analytics.source.portions import Portion

#: How long one statement of a read may take; the longest seen, 200,000 rows on a busy machine, took 4 s.
TIMEOUT: Final = timedelta(minutes=5)
NAME: Final = "pillarbox analytics"

#: Another session keeps a lock for longer than we wait.
LOCKED: Final = database.LOCKED

type Session = psycopg.Connection[Any]


class PartitionDropped(PillarboxError):
    """A day partition was dropped, or created again, between planning and reading."""


@contextmanager
def session(
    conninfo: str, *, read_only: bool = True, timeout: timedelta = TIMEOUT, parallel: bool = False
) -> Iterator[Session]:
    """A connection for the block; what the server or the way to it does wrong is DatabaseUnavailable.

    parallel: PostgreSQL may take several processes for one statement. Otherwise one, which leaves cores to mail.
    """
    try:
        conninfo = database.complete(conninfo, NAME)
        if read_only:
            # A replica will do.
            conninfo = psycopg.conninfo.make_conninfo(conninfo, target_session_attrs="any")
        # Nothing is prepared: there may be a pooler in between, and nothing here is asked often.
        with psycopg.connect(
            conninfo, autocommit=True, row_factory=namedtuple_row, prepare_threshold=None
        ) as connection:
            settings = {"statement_timeout": str(int(timeout.total_seconds() * 1000)), "timezone": "UTC"}
            if not parallel:
                settings["max_parallel_workers_per_gather"] = "0"
            settings |= {"default_transaction_read_only": "on" if read_only else "off", "datestyle": "ISO"}
            for name, value in settings.items():
                connection.execute(query("analytics_setting"), {"name": name, "value": value})
            yield connection
    except database.OUTAGE as error:
        raise database.unavailable(error) from None
    except database.REFUSAL as error:
        raise PillarboxError(f"PostgreSQL refused: {database.reason(error)}") from None


def rows(connection: Session, name: str, /, **values: object) -> list[Any]:
    """Run sql/queries/<name>.sql; its rows as named tuples."""
    return connection.execute(query(name), values or None).fetchall()


def copy_in(connection: Session, table: str, columns: Sequence[str], csv: bytes) -> None:
    """Append rows, as CSV in the order of `columns`, to a table of history or one of its days."""
    statement = sql.SQL(query("analytics_copy_in")).format(
        table=sql.Identifier("pillarbox", table), columns=sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(csv)


def copy_out(connection: Session, history: History, portion: Portion, columns: Sequence[str]) -> memoryview:
    """The rows of one portion as CSV, in the order of `columns`; raises PartitionDropped.

    The leaf is locked by the statement that reads it until the transaction ends, so one that is there afterwards was
    read; reading through the parent alone would find a dropped day empty and say nothing.
    """
    selected = (sql.SQL(history.kinds[name].select).format(sql.Identifier(name)) for name in columns)
    statement = sql.SQL(query("analytics_copy_out")).format(
        table=sql.Identifier("pillarbox", history.name),
        columns=sql.SQL(", ").join(selected),
        instant=sql.Identifier(history.instant),
        since=sql.Literal(portion.since),
        until=sql.Literal(portion.until),
        first=sql.Literal(f"({portion.first},0)"),
        last=sql.Literal(f"({portion.last},0)"),
        conditions=sql.SQL("").join(_condition(*condition) for condition in portion.conditions),
    )
    with connection.transaction():
        text = _sent(connection, statement)
        [found] = connection.execute(query("analytics_leaf_there"), {"leaf": portion.leaf}).fetchall()
    if not found.there:
        raise PartitionDropped(f"{history.name}: the day {portion.since:%Y-%m-%d} was dropped while it was read")
    return text


def listing(connection: Session, name: str) -> memoryview:
    """The CSV that the COPY of sql/queries/<name>.sql sends."""
    return _sent(connection, sql.SQL(query(name)))


def _sent(connection: Session, statement: sql.Composable) -> memoryview:
    """The data of a COPY, from libpq itself: PostgreSQL sends row by row, and psycopg waits for each."""
    sink = io.BytesIO()
    results = [connection.pgconn.exec_(statement.as_bytes(connection))]
    if results[0].status == ExecStatus.COPY_OUT:
        write, receive = sink.write, connection.pgconn.get_copy_data
        octets, row = receive(0)
        while octets > 0:
            write(row)
            octets, row = receive(0)
        while (result := connection.pgconn.get_result()) is not None:
            results.append(result)
    if results[-1].status != ExecStatus.COMMAND_OK:
        error = psycopg.errors.error_from_result(results[-1])
        # libpq has no SQLSTATE for a connection that broke.
        raise psycopg.OperationalError(str(error)) if connection.pgconn.status != ConnStatus.OK else error
    return sink.getbuffer()


def sums(connection: Session, history: History, columns: Sequence[str], since: datetime) -> Any:
    """The row of sums over the day that begins at `since`; `columns` are those whose octets are summed."""
    octets = (sql.SQL("coalesce(octet_length({}), 0)").format(sql.Identifier(name)) for name in columns)
    statement = sql.SQL(query("analytics_fingerprint")).format(
        table=sql.Identifier("pillarbox", history.name),
        instant=sql.Identifier(history.instant),
        octets=sql.SQL(" + ").join(octets),
        since=sql.Literal(since),
        until=sql.Literal(since + timedelta(days=1)),
    )
    [found] = connection.execute(statement).fetchall()
    return found


def _condition(column: str, operator: str, value: object) -> sql.Composable:
    """One condition that Spark asked for; the operator is one of a fixed list (source.OPERATORS)."""
    return sql.SQL(f" AND {{}} {operator} {{}}").format(sql.Identifier(column), sql.Literal(value))
