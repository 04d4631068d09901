"""copying — copies rows of history with COPY, each in one short transaction

Owns: the synchronous connections of analytics, and COPY in both directions as CSV.
Guarantees: a connection is in autocommit with the application name `pillarbox analytics`. Reads are read-only, have a
    statement timeout, and their transaction ends with the statement. Of several hosts any may serve reads.
Raises: DatabaseUnavailable in one line without the password; PartitionDropped if a day was dropped during the read.
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

from shared.errors import DatabaseUnavailable, PillarboxError
from shared.postgres import database
from shared.postgres.queries import query

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from scripts.analytics.source.columns import History
    from scripts.analytics.source.portions import Portion

#: Limit of one statement of a read; the longest measured, 200,000 rows on a busy machine, took 4 s. Beyond it the
#: statement ends with the next row that is taken: until then its snapshot is held.
TIMEOUT: Final = timedelta(minutes=5)
NAME: Final = "pillarbox analytics"

#: Another session holds a lock beyond our lock timeout.
LOCKED: Final = database.LOCKED

type Session = psycopg.Connection[Any]


class PartitionDropped(PillarboxError):
    """A day partition was dropped, or created again, between planning and reading."""


@contextmanager
def session(
    conninfo: str, *, read_only: bool = True, timeout: timedelta = TIMEOUT, parallel: bool = False
) -> Iterator[Session]:
    """A connection for the block; faults of the server or the network are DatabaseUnavailable.

    parallel: PostgreSQL may use several processes for a statement; otherwise one, which leaves cores for mail.
    """
    try:
        conninfo = database.complete(conninfo, NAME)
        if read_only:
            # A replica suffices.
            conninfo = psycopg.conninfo.make_conninfo(conninfo, target_session_attrs="any")
        # Nothing is prepared: there may be a pooler in between, and no statement here is frequent.
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
    except database.CANCELLED as error:
        raise DatabaseUnavailable(
            f"PostgreSQL ended a statement: {database.reason(error)}; repeat the command when this machine is less busy"
        ) from None
    except database.OUTAGE as error:
        raise database.unavailable(error) from None
    except database.REFUSAL as error:
        raise PillarboxError(f"PostgreSQL refused: {database.reason(error)}") from None


def rows(connection: Session, name: str, /, **values: object) -> list[Any]:
    """Run the query `name`; its rows as named tuples."""
    return connection.execute(query(name), values or None).fetchall()


def execute(connection: Session, name: str, /, **values: object) -> None:
    """Run the query `name`, which returns no rows."""
    connection.execute(query(name), values or None)


def copy_in(connection: Session, table: str, columns: Sequence[str], csv: bytes) -> None:
    """Append rows, as CSV in the order of `columns`, to a table of history or one of its days."""
    statement = sql.SQL(query("analytics_copy_in")).format(
        table=sql.Identifier("pillarbox", table), columns=sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(csv)


def copy_out(connection: Session, history: History, portion: Portion, columns: Sequence[str]) -> memoryview:
    """The rows of one portion as CSV, in the order of `columns`; raises PartitionDropped.

    The reading statement locks the leaf until the transaction ends, so a leaf that still exists afterwards was read.
    Reading through the parent alone would silently find a dropped day empty. Portion 0 is of a table without leaves.
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
        leaf = {"leaf": portion.leaf}
        there = not portion.leaf or connection.execute(query("analytics_leaf_there"), leaf).fetchall()[0].there
    if not there:
        raise PartitionDropped(f"{history.name}: the day {portion.since:%Y-%m-%d} was dropped during the read")
    return text


def copy_new(connection: Session, **values: str) -> memoryview:
    """What the snapshot `upto`, taken `at`, sees of attempts and `after` does not, from `since` on, as CSV."""
    literals = {name: sql.Literal(value) for name, value in values.items()}
    return _sent(connection, sql.SQL(query("stream_attempts")).format(**literals))


def listing(connection: Session, name: str) -> memoryview:
    """The CSV from the COPY statement of the query `name`."""
    return _sent(connection, sql.SQL(query(name)))


def _sent(connection: Session, statement: sql.Composable) -> memoryview:
    """The data of a COPY, read with libpq: PostgreSQL sends each row, and psycopg would wait for each."""
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
    """The row of sums over the day that begins at `since`; the octets of `columns` are summed."""
    octets = (sql.SQL("coalesce(octet_length({}), 0)").format(sql.Identifier(name)) for name in columns)
    sizes = [sql.SQL("{}::bigint").format(sql.Identifier(name)) for name in history.sizes]
    sizes += [sql.SQL("({} IS NOT NULL)::int").format(sql.Identifier(name)) for name in history.marks]
    statement = sql.SQL(query("analytics_fingerprint")).format(
        table=sql.Identifier("pillarbox", history.name),
        instant=sql.Identifier(history.instant),
        sizes=sql.SQL(" + ").join(sizes),
        octets=sql.SQL(" + ").join(octets),
        since=sql.Literal(since),
        until=sql.Literal(since + timedelta(days=1)),
    )
    [found] = connection.execute(statement).fetchall()
    return found


def _condition(column: str, operator: str, value: object) -> sql.Composable:
    """One condition that Spark asked for; the operator is one of a fixed list (source.OPERATORS)."""
    return sql.SQL(f" AND {{}} {operator} {{}}").format(sql.Identifier(column), sql.Literal(value))
