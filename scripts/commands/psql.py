"""psql — `pillarbox psql`: psql on the configured database, the embedded one included

Owns: which psql is run, and its arguments. For the embedded server it is the one that came with that server.
Guarantees: nothing is started but psql. A password of `database.uri` goes to psql by its environment, not by its
    command line, which everybody on the host can read.
Raises: PillarboxError where psql is missing; DatabaseUnavailable where the embedded server does not run.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from scripts.options import add_config
from shared.config.smtpd.load import load_smtpd
from shared.errors import DatabaseUnavailable, PillarboxError
from shared.postgres import database
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `psql` to the command line."""
    parser = subparsers.add_parser("psql", help="psql on the configured database")
    add_config(parser)
    parser.add_argument("words", nargs="*", metavar="ARGUMENT", help='for psql, after --: -- -c "SELECT 1"')
    advice = 'options of psql come after --, as in `pillarbox psql -- -c "SELECT 1"`'
    parser.set_defaults(func=run, advice=advice)


def run(options: argparse.Namespace) -> int:
    """Become psql; its exit status is the command's."""
    program, arguments, environment = command(options)
    os.execve(program, arguments, {**os.environ, **environment})  # noqa: S606 - psql, with our own arguments


def command(options: argparse.Namespace) -> tuple[str, list[str], dict[str, str]]:
    """The program, its arguments, and what its environment has besides ours."""
    place = load_smtpd(options.config / "smtpd.yaml").environment
    conninfo = database.resolve_running(place.database.uri, place.var)
    if conninfo is None:
        raise DatabaseUnavailable(
            f"no PostgreSQL runs under {place.var}: start it with `pillarbox up` or `pillarbox database start`"
        )
    program = embedded.program("psql") if database.is_embedded(place.database.uri) else None
    program = program or shutil.which("psql") or embedded.program("psql")
    if program is None:
        raise PillarboxError("psql is not installed; Debian and Ubuntu: apt-get install postgresql-client")
    plain, password = database.without_password(conninfo)
    environment = {"PGAPPNAME": "pillarbox psql"} | ({"PGPASSWORD": password} if password else {})
    return program, [program, plain, *options.words], environment
