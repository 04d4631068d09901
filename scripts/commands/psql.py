"""psql — `pillarbox psql`: psql on the configured database, the embedded one included

Owns: which psql is run, and its arguments. For the embedded server it is the one that came with that server.
Guarantees: nothing is started but psql. A word that psql would ignore is refused. A password of `database.uri` goes to
    psql by its environment, not by its command line, which everybody on the host can read.
Raises: PillarboxError where psql is missing; DatabaseUnavailable where the embedded server does not run.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Final

from scripts.options import add_config
from shared.config.smtpd.load import load_smtpd
from shared.errors import DatabaseUnavailable, PillarboxError
from shared.masking import show
from shared.postgres import database
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    import argparse

_EXAMPLE: Final = '`pillarbox psql -- -c "SELECT 1"`'
#: The options of psql that take the next word.
_BEFORE_A_VALUE: Final = re.compile(
    r"-[^-cdfFhLopPRTUv]*[cdfFhLopPRTUv]|--(command|dbname|file|field-separator|host|log-file|output|port|pset"
    r"|record-separator|set|table-attr|username|variable)"
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `psql` to the command line."""
    parser = subparsers.add_parser("psql", help="psql on the configured database")
    add_config(parser)
    parser.add_argument("words", nargs="*", metavar="ARGUMENT", help='for psql, after --: -- -c "SELECT 1"')
    advice = f"options of psql come after --, as in {_EXAMPLE}"
    parser.set_defaults(func=run, advice=advice)


def run(options: argparse.Namespace) -> int:
    """Become psql; its exit status is the command's."""
    if (word := _stray(options.words)) is not None:
        options.parser.error(f"{show(word)} is not an option of psql; allowed: SQL after -c, as in {_EXAMPLE}")
    program, arguments, environment = command(options)
    os.execve(program, arguments, {**os.environ, **environment})  # noqa: S606 - psql, with our own arguments


def _stray(words: list[str]) -> str | None:
    """The first word that psql would take for a database or user and, as both are given, ignore."""
    is_value = False
    for word in words:
        if not is_value and not word.startswith("-"):
            return word
        is_value = not is_value and _BEFORE_A_VALUE.fullmatch(word) is not None
    return None


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
