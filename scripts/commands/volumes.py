"""volumes — `pillarbox volumes`: report how much room PostgreSQL's volumes have, for smtpd on other hosts

Owns: the reporter that runs on the database's host, and its reports.
Guarantees: the figures are written once every beat, whatever they are; an outage is one line and another try. When it
    ends, its reports grow old, which smtpd and doctor report; `forget` is for volumes that are gone.
Raises: PillarboxError for a path that cannot be reached at the start.
See: shared/spool/space.py; docs/how-to/accept/stop-before-the-disk-is-full.md.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scripts import one_connection
from scripts.options import duration, finish
from scripts.output import records
from scripts.output.table import Column, Table
from shared.config.units import format_size
from shared.errors import DatabaseUnavailable, PillarboxError, in_words
from shared.postgres import database
from shared.spool.space import measure, measure_reachable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

_BEAT: Final = timedelta(seconds=5)
_PATIENCE: Final = 10.0  # seconds for one report
_NAME: Final = "pillarbox volumes"
_COLUMNS: Final = (
    Column("host", least=12, whole=True),
    Column("path", least=16, whole=True),
    Column("free", right=True),
    Column("size", right=True),
    Column("reported"),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `volumes` and its verbs to the command line."""
    parser = subparsers.add_parser("volumes", help="report how much room PostgreSQL's volumes have")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("report", help="report until it is stopped, on the host of the database")
    verb.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="data directory, pg_wal, tablespaces")
    verb.add_argument("--every", type=duration, default=_BEAT, metavar="TIME", help="how often (5s)")
    verb.add_argument("--once", action="store_true", help="report once, for a timer that runs it every TIME")
    _add_host(verb)
    finish(verb, report)

    finish(verbs.add_parser("list", help="list the reported volumes"), list_volumes)

    verb = verbs.add_parser("forget", help="remove a host that no longer reports")
    _add_host(verb)
    finish(verb, forget)


def _add_host(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--host", default=socket.gethostname(), metavar="NAME", help="its name (this host's)")


def report(options: argparse.Namespace) -> int:
    """Report until Ctrl-C or SIGTERM, or once."""
    try:
        measure(options.paths)
    except OSError as error:
        raise PillarboxError(f"volumes: {in_words(error)}; allowed: folders that this account can reach") from None
    if options.once:
        _ask(options, lambda connection: _report(connection, options))
        if options.json:
            records.one({"host": options.host, "paths": list(map(str, options.paths))})
        return 0
    asyncio.run(_go_on(one_connection.configured(options), options))
    return 0


async def _go_on(conninfo: str, options: argparse.Namespace) -> None:
    connection: database.Connection | None = None
    try:
        while True:
            try:
                async with asyncio.timeout(_PATIENCE):
                    if connection is None or connection.closed:
                        connection = await database.connect(conninfo, _NAME)
                    await _report(connection, options)
            except (DatabaseUnavailable, TimeoutError, *database.OUTAGE, *database.REFUSAL) as error:
                sys.stderr.write(f"pillarbox: volumes: {in_words(error)}\n")
                if connection is not None:
                    await connection.close()
                    connection = None
            await asyncio.sleep(options.every.total_seconds())
    finally:
        if connection is not None:
            await connection.close()


async def _report(connection: database.Connection, options: argparse.Namespace) -> None:
    volumes, troubles = await asyncio.to_thread(measure_reachable, options.paths)
    for trouble in troubles:  # its report grows old, which is an alarm; the others go on
        sys.stderr.write(f"pillarbox: volumes: {trouble}\n")
    await database.fetch(
        connection,
        "volume_report",
        host=options.host,
        beat=options.every,
        paths=[volume.path for volume in volumes],
        free=[volume.free for volume in volumes],
        size=[volume.size for volume in volumes],
    )


def list_volumes(options: argparse.Namespace) -> int:
    """Print what is reported."""
    rows = _ask(options, lambda connection: database.fetch(connection, "volume_figures"))
    if options.json:
        records.lines(
            {
                **{name: getattr(row, name) for name in ("host", "path", "free", "size", "fresh")},
                "seconds": row.age.total_seconds(),
            }
            for row in rows
        )
        return 0
    Table(_COLUMNS).print(
        (
            *(row.host, row.path, format_size(row.free), format_size(row.size)),
            f"{row.age.total_seconds():.0f} s ago" + ("" if row.fresh else ", and not since"),
        )
        for row in rows
    )
    if not rows:
        print("no volumes are reported")
    return 0


def forget(options: argparse.Namespace) -> int:
    """Forget a host."""
    _ask(options, lambda connection: database.fetch(connection, "volume_forget", host=options.host))
    if options.json:
        records.one({"host": options.host})
    return 0


def _ask[Answer](options: argparse.Namespace, work: Callable[[database.Connection], Awaitable[Answer]]) -> Answer:
    return one_connection.ask(one_connection.configured(options), _NAME, work)
